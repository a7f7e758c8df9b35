"""Changes of a model that keep it a message: operators, attributes, shapes, types, names, wires, data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from google.protobuf.message import EncodeError
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tests.fuzz.mutators import raw
from tests.fuzz.mutators.raw import Random
from tests.fuzz.mutators.texts import HOSTILE

SIZES = (
    -(2**63),
    -(2**31),
    -5,
    -1,
    0,
    1,
    2,
    3,
    7,
    64,
    1000,
    65_537,
    10**6,
    2**31 - 1,
    2**31,
    2**40,
    2**62,
    2**63 - 1,
)
FLOATS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    1e-45,
    1e-30,
    3.4e38,
    float("inf"),
    float("-inf"),
    float("nan"),
    0.5,
    1e9,
    -10000.0,
)
OPERATORS = sorted({schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""})
ATTRIBUTES = sorted({name for s in onnx.defs.get_all_schemas() for name in s.attributes})

Change = Callable[[Random, ModelProto], None]


def mutated(rng: Random, data: bytes) -> bytes:
    """A model with one to three changes of its structure, or some of its bytes."""
    if rng.random() < 0.15:
        return raw.mutated(rng, data)
    model = onnx.load_model_from_string(data)
    try:
        for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
            CHANGES[int(rng.integers(len(CHANGES)))](rng, model)
        return bytes(model.SerializeToString())
    except (EncodeError, ValueError, TypeError, OSError):  # a change of what another one damaged
        return raw.mutated(rng, data)


def _node(rng: Random, model: ModelProto) -> NodeProto:
    nodes = model.graph.node
    return nodes[int(rng.integers(len(nodes)))] if nodes else nodes.add(op_type="Relu")


def _name(rng: Random, model: ModelProto) -> str:
    """A name that the model knows."""
    names = [n for node in model.graph.node for n in (*node.input, *node.output)]
    names += [t.name for t in model.graph.initializer] + [v.name for v in model.graph.input] + [""]
    return names[int(rng.integers(len(names)))]


def _text(rng: Random) -> str:
    return HOSTILE[int(rng.integers(len(HOSTILE)))]


def _size(rng: Random) -> int:
    return SIZES[int(rng.integers(len(SIZES)))]


def change_operator(rng: Random, model: ModelProto) -> None:
    _node(rng, model).op_type = (
        OPERATORS[int(rng.integers(len(OPERATORS)))] if rng.random() < 0.9 else _text(rng)
    )


def change_domain(rng: Random, model: ModelProto) -> None:
    _node(rng, model).domain = str(
        rng.choice(["ai.onnx", "ai.onnx.ml", "com.microsoft", "custom", "\x1b[1m"])
    )


def change_attribute(rng: Random, model: ModelProto) -> None:
    attributes = _node(rng, model).attribute
    if not attributes:
        return add_attribute(rng, model)
    found = attributes[int(rng.integers(len(attributes)))]
    if found.type == AttributeProto.INT:
        found.i = _size(rng)
    elif found.type == AttributeProto.INTS and rng.random() < 0.8 and found.ints:
        found.ints[int(rng.integers(len(found.ints)))] = _size(rng)
    elif found.type == AttributeProto.INTS:
        found.ints[:] = [_size(rng) for _ in range(int(rng.integers(9)))]
    elif found.type == AttributeProto.FLOAT:
        found.f = FLOATS[int(rng.integers(len(FLOATS)))]
    elif found.type == AttributeProto.STRING:
        found.s = rng.bytes(5) if rng.random() < 0.3 else _text(rng).encode()
    elif found.type == AttributeProto.TENSOR:
        _damage(rng, found.t)
    if rng.random() < 0.1:
        found.type = int(rng.integers(0, 15))
    return None


def add_attribute(rng: Random, model: ModelProto) -> None:
    name = ATTRIBUTES[int(rng.integers(len(ATTRIBUTES)))] if rng.random() < 0.9 else _text(rng)
    values = (
        _size(rng),
        [_size(rng) for _ in range(int(rng.integers(1, 7)))],
        FLOATS[int(rng.integers(len(FLOATS)))],
        _text(rng),
        numpy_helper.from_array(np.zeros(2, np.float32)),
        model.graph,
    )
    value = values[int(rng.integers(len(values)))]
    _node(rng, model).attribute.append(helper.make_attribute(name, value))


def remove_attribute(rng: Random, model: ModelProto) -> None:
    attributes = _node(rng, model).attribute
    if attributes:
        del attributes[int(rng.integers(len(attributes)))]


def rewire(rng: Random, model: ModelProto) -> None:
    """Another known value, one that nothing gives, or none: cycles and wrong types come of it."""
    inputs = _node(rng, model).input
    name = _name(rng, model) if rng.random() < 0.8 else _text(rng)
    if inputs:
        inputs[int(rng.integers(len(inputs)))] = name
    else:
        inputs.append(name)


def change_arity(rng: Random, model: ModelProto) -> None:
    node = _node(rng, model)
    ends = node.input if rng.random() < 0.6 else node.output
    if ends and rng.random() < 0.5:
        del ends[int(rng.integers(len(ends)))]
    else:
        ends.extend(_name(rng, model) for _ in range(int(rng.integers(1, 4))))


def rename(rng: Random, model: ModelProto) -> None:
    """A hostile name for a value wherever it occurs, or for a node, an input, the graph, a dimension."""
    old, new = _name(rng, model), _text(rng)
    kind = int(rng.integers(5))
    if kind == 0:
        for node in model.graph.node:
            node.input[:] = [new if n == old else n for n in node.input]
            node.output[:] = [new if n == old else n for n in node.output]
        for entry in (*model.graph.initializer, *model.graph.input, *model.graph.output):
            entry.name = new if entry.name == old else entry.name
    elif kind == 1:
        _node(rng, model).name = new
    elif kind == 2:
        ends = model.graph.output if rng.random() < 0.5 else model.graph.input
        if ends:
            ends[int(rng.integers(len(ends)))].name = new
    elif kind == 3:
        model.graph.name = model.producer_name = model.graph.doc_string = new
    else:
        _dimension(rng, model, lambda dim: setattr(dim, "dim_param", new))


def duplicate(rng: Random, model: ModelProto) -> None:
    """One more node, initializer, input or output that is there already."""
    graph = model.graph
    parts = (graph.node, graph.initializer, graph.input, graph.output)
    part = parts[int(rng.integers(len(parts)))]
    if part:
        part.append(part[int(rng.integers(len(part)))])


def remove(rng: Random, model: ModelProto) -> None:
    graph = model.graph
    parts = (graph.node, graph.initializer, graph.input, graph.output, model.opset_import)
    part = parts[int(rng.integers(len(parts)))]
    if part:
        del part[int(rng.integers(len(part)))]


def output_of_anything(rng: Random, model: ModelProto) -> None:
    """An output that is an input, a constant or an inner value."""
    model.graph.output.append(helper.make_empty_tensor_value_info(_name(rng, model)))


def _dimension(
    rng: Random, model: ModelProto, change: Callable[[onnx.TensorShapeProto.Dimension], None]
) -> None:
    ends = [*model.graph.input, *model.graph.output]
    dims = [dim for value in ends for dim in value.type.tensor_type.shape.dim]
    if dims:
        change(dims[int(rng.integers(len(dims)))])


def change_dimension(rng: Random, model: ModelProto) -> None:
    _dimension(rng, model, lambda dim: setattr(dim, "dim_value", _size(rng)))


def change_rank(rng: Random, model: ModelProto) -> None:
    if not model.graph.input:
        return
    shape = model.graph.input[int(rng.integers(len(model.graph.input)))].type.tensor_type.shape
    if shape.dim and rng.random() < 0.5:
        del shape.dim[int(rng.integers(len(shape.dim)))]
    else:
        shape.dim.add().dim_value = int(rng.integers(1, 5))


def change_type(rng: Random, model: ModelProto) -> None:
    ends = [*model.graph.input, *model.graph.output]
    if ends:
        ends[int(rng.integers(len(ends)))].type.tensor_type.elem_type = int(rng.integers(-1, 30))


def _damage(rng: Random, tensor: TensorProto) -> None:
    kind = int(rng.integers(7))
    if kind == 0 and tensor.dims:
        tensor.dims[int(rng.integers(len(tensor.dims)))] = _size(rng)
    elif kind == 1:
        tensor.data_type = int(rng.integers(-1, 30))
    elif kind == 2:
        tensor.raw_data = tensor.raw_data[: int(rng.integers(len(tensor.raw_data) + 1))]
    elif kind == 3:
        tensor.raw_data = tensor.raw_data + rng.bytes(int(rng.integers(1, 9)))
    elif kind == 4:
        tensor.dims.append(int(rng.integers(3)))
    elif kind == 5:
        tensor.data_location = TensorProto.EXTERNAL
        location = ["w.bin", "../w.bin", "/etc/passwd", "/dev/zero", ".", "a" * 5000, "\0", ""]
        fields = {"location": location[int(rng.integers(len(location)))]}
        fields["offset"] = str(_size(rng)) if rng.random() < 0.7 else _text(rng)
        fields["length"] = str(_size(rng))
        for key, value in fields.items():
            tensor.external_data.add(key=key, value=value)
    else:
        values = np.frombuffer(tensor.raw_data, np.uint8).copy()
        if values.size:
            start = int(rng.integers(values.size))
            values[start : start + 8] = np.frombuffer(
                np.float32(FLOATS[int(rng.integers(len(FLOATS)))]).tobytes() * 2, np.uint8
            )[: values[start : start + 8].size]
            tensor.raw_data = values.tobytes()


def damage_initializer(rng: Random, model: ModelProto) -> None:
    tensors = model.graph.initializer
    if tensors:
        _damage(rng, tensors[int(rng.integers(len(tensors)))])


def change_integers(rng: Random, model: ModelProto) -> None:
    """Other shapes, pads, repeats, indices: what small integer constants mostly are."""
    found = [t for t in model.graph.initializer if t.data_type in (TensorProto.INT64, TensorProto.INT32)]
    if not found:
        return damage_initializer(rng, model)
    tensor = found[int(rng.integers(len(found)))]
    try:
        array = numpy_helper.to_array(tensor).copy()
    except (ValueError, RuntimeError):  # damaged by another change
        return None
    if array.size:
        bounds = np.iinfo(array.dtype)
        array.reshape(-1)[int(rng.integers(array.size))] = min(max(_size(rng), bounds.min), bounds.max)
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return None


def change_numbers(rng: Random, model: ModelProto) -> None:
    """Special values among the weights, the scales and the bounds."""
    found = [t for t in model.graph.initializer if t.data_type == TensorProto.FLOAT]
    if not found:
        return
    tensor = found[int(rng.integers(len(found)))]
    try:
        array = numpy_helper.to_array(tensor).copy()
    except (ValueError, RuntimeError):  # damaged by another change
        return
    if array.size:
        array.reshape(-1)[int(rng.integers(array.size))] = FLOATS[int(rng.integers(len(FLOATS)))]
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def compute_operand(rng: Random, model: ModelProto) -> None:
    """A constant becomes an input: what is known while importing is known no more."""
    if not model.graph.initializer:
        return
    index = int(rng.integers(len(model.graph.initializer)))
    tensor = model.graph.initializer[index]
    model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type or 1, tensor.dims))
    del model.graph.initializer[index]


def make_scalar(rng: Random, model: ModelProto) -> None:
    """An operand without axes."""
    if model.graph.initializer:
        index = int(rng.integers(len(model.graph.initializer)))
        tensor = model.graph.initializer[index]
        kind = np.float32 if tensor.data_type == TensorProto.FLOAT else np.int64
        tensor.CopyFrom(numpy_helper.from_array(np.asarray(rng.integers(-3, 4), kind), tensor.name))


def huge_constant(rng: Random, model: ModelProto) -> None:
    """A node that makes much of a little, before another that is there."""
    graph, node = model.graph, _node(rng, model)
    name, wide = f"huge{len(graph.node)}", _size(rng)
    shape = [max(wide, 0)] if rng.random() < 0.5 else [int(rng.integers(1, 50_000)) for _ in range(3)]
    kind = int(rng.integers(4))
    one = numpy_helper.from_array(np.ones(1, np.float32), f"{name}_one")
    sizes = numpy_helper.from_array(np.array(shape, np.int64), f"{name}_sizes")
    graph.initializer.extend([one, sizes])
    if kind == 0:
        made = helper.make_node("Expand", [one.name, sizes.name], [name])
    elif kind == 1:
        made = helper.make_node("ConstantOfShape", [sizes.name], [name])
    elif kind == 2:
        sizes.CopyFrom(numpy_helper.from_array(np.array([max(wide, 0)], np.int64), sizes.name))
        made = helper.make_node("Tile", [one.name, sizes.name], [name])
    else:
        bounds = [f"{name}_{part}" for part in ("start", "limit", "delta")]
        for bound, value in zip(bounds, (0, wide, 1), strict=True):
            graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), bound))
        made = helper.make_node("Range", bounds, [name])
    if node.input:
        node.input[int(rng.integers(len(node.input)))] = name
    graph.node.insert(0, made)


def add_function(rng: Random, model: ModelProto) -> None:
    """A function of the model that a node calls, perhaps calling itself."""
    node = _node(rng, model)
    body = NodeProto()
    body.CopyFrom(node)
    inner = helper.make_function(
        "local",
        "f",
        [f"i{k}" for k in range(len(node.input))],
        [f"o{k}" for k in range(len(node.output))],
        [body],
        list(model.opset_import),
    )
    body = inner.node[0]
    body.input[:], body.output[:] = inner.input, inner.output
    if rng.random() < 0.3:
        body.op_type, body.domain = "f", "local"
    model.functions.append(inner)
    node.op_type, node.domain = "f", "local"
    model.opset_import.append(helper.make_opsetid("local", 1))


def change_opset(rng: Random, model: ModelProto) -> None:
    if model.opset_import:
        model.opset_import[0].version = int(
            rng.choice([-1, 0, 1, 6, 7, 9, 11, 12, 13, 17, 18, 21, 22, 24, 25, 1000])
        )
    if rng.random() < 0.2:
        model.ir_version = int(rng.choice([-1, 0, 1, 3, 4, 8, 10, 99]))


CHANGES: tuple[Change, ...] = (
    change_operator,
    change_operator,
    change_domain,
    change_attribute,
    change_attribute,
    change_attribute,
    add_attribute,
    remove_attribute,
    rewire,
    rewire,
    change_arity,
    rename,
    rename,
    duplicate,
    remove,
    output_of_anything,
    change_dimension,
    change_rank,
    change_type,
    damage_initializer,
    damage_initializer,
    change_integers,
    change_integers,
    change_numbers,
    compute_operand,
    make_scalar,
    huge_constant,
    add_function,
    change_opset,
)
