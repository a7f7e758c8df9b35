"""One ONNX model for all shapes of its inputs, from exports of the same graph for several of them.

Exports for different shapes differ in the integers that tell Reshape, Expand, Slice and Resize of sizes, and
in constants that repeat or count as far as a shape goes. Those are computed from the shapes of inputs while
the model runs, or left to Reshape, which copies dimensions of its operand and concludes one; others as the
float model computes them from sizes. Where exports differ in anything else, no single model stands for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import onnx
from onnx import numpy_helper

from qglow.core.errors import UnsupportedError
from qglow.core.types import Array, Dimension, Shape
from qglow.exporter.apart import DataApart
from qglow.exporter.lasting import Parts, Replacements
from qglow.exporter.proto import checked
from qglow.exporter.reshapes import reshape_for_all
from qglow.exporter.sizes import Dimensions, SizeNodes
from qglow.interchange.nodes import outer_names

ALL = np.iinfo(np.int64).max
"""End of a slice that reaches as far as its operand."""


class StructureError(UnsupportedError):
    """Exports have other nodes, not only other sizes."""


@dataclass(frozen=True)
class SizedModel:
    """The export of a graph for these sizes of its dimensions; shapes: of the graph's values, by name.

    apart: where the data of its large constants are, which all exports of one model share. integers: tensors
    of the model that have the integers of values.
    """

    sizes: Mapping[str, int]
    model: onnx.ModelProto
    shapes: Mapping[str, Shape]
    apart: DataApart = field(default_factory=DataApart)
    integers: Mapping[str, str] = field(default_factory=dict)


def unify(
    models: Sequence[SizedModel],
    inputs: Mapping[str, Sequence[Dimension]],
    tables: Callable[[], Iterable[Array]] = tuple,
    parts: Parts = lambda name, arrays: None,
) -> onnx.ModelProto:
    """The model for all sizes of the dimensions, which `inputs` names by input and axis.

    tables: gives arrays that constants may be the beginning of, as a shape goes, such as embeddings of
    positions. parts: gives what computes a constant from sizes, where the float model has that. Raises
    StructureError and AmbiguityError, see there, and UnsupportedError for a constant that nothing explains.
    """
    _check_structure(models)
    result = onnx.ModelProto()
    result.CopyFrom(models[0].model)
    dimensions = Dimensions(inputs, [entry.sizes for entry in models])
    names = [name for node in result.graph.node for name in (*node.input, *node.output)]
    work = SizeNodes(dimensions, [*names, *(tensor.name for tensor in result.graph.initializer)])
    changed = _changed(models)
    for node in result.graph.node:
        if node.op_type == "Reshape" and node.input[1] in changed:
            operands = [entry.shapes.get(node.input[0]) for entry in models]
            reshape_for_all(node, changed[node.input[1]], operands, work, dimensions)
        if node.op_type == "Slice" and not changed.keys().isdisjoint(node.input[1:3]):
            _slice_from_ends(node, changed, models, work)
    lasting = Replacements(work, tables, parts, partial(_find, models))
    made = _with_computed_parameters(result.graph.node, changed, lasting)
    read = {name for node in result.graph.node for name in outer_names(node)} - made.keys()
    given = {value.name for value in result.graph.output} & changed.keys()
    made |= {name: lasting.of(name, arrays) for name, arrays in changed.items() if name in read | given}
    for node in result.graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = made.get(name, name)
        if not made.keys().isdisjoint(outer_names(node)):
            raise UnsupportedError(f"a branch or body of node '{node.name}' reads what depends on shapes")
    whole = [onnx.helper.make_node("Identity", [made[name]], [name]) for name in sorted(given)]
    nodes = _in_order([*work.nodes, *result.graph.node, *whole])
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    _name_dimensions(result.graph, models, dimensions)
    read = {name for node in result.graph.node for name in outer_names(node)}
    read |= {value.name for value in result.graph.output} - given
    kept = [tensor for tensor in result.graph.initializer if tensor.name in read]
    return checked(result, [*work.constants, *kept])


def _with_computed_parameters(
    nodes: Sequence[onnx.NodeProto], changed: Mapping[str, Sequence[Array]], lasting: Replacements
) -> dict[str, str]:
    """Replacements of integers whose scale follows shapes, which nodes that dequantize them then read."""
    made: dict[str, str] = {}
    for node in nodes:
        if node.op_type == "DequantizeLinear" and {*node.input[:2]} <= changed.keys():
            name = node.input[0]
            made[name] = made.get(name) or lasting.of(name, changed[name])
            if name in lasting.parameters:
                node.input[1:3] = lasting.parameters[name]
    return made


def _find(
    models: Sequence[SizedModel], tensors: Sequence[str], axis: int, sizes: Sequence[int]
) -> str | None:
    """The first of some tensors that has these sizes at an axis, as the exported model calls it."""
    produced = {name for node in models[0].model.graph.node for name in node.output}
    for tensor in tensors:
        shapes = [entry.shapes.get(tensor, ()) for entry in models]
        if [shape[axis] for shape in shapes if axis < len(shape)] != list(sizes):
            continue
        names = (tensor, models[0].integers.get(tensor))
        found = next((name for name in names if name in produced), None)
        if found is not None:
            return found
    return None


def _in_order(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Nodes in the order given, but for those that others read, which come before these.

    Raises UnsupportedError where nodes read one another.
    """
    producers = {name: place for place, node in enumerate(nodes) for name in node.output if name}
    order: list[int] = []
    placed, begun = set[int](), set[int]()
    for first in range(len(nodes)):
        waiting = [first]
        while waiting:
            place = waiting[-1]
            read = {producers[name] for name in outer_names(nodes[place]) if name in producers} - placed
            if place in placed or not read:
                waiting.pop()
                if place not in placed:
                    placed.add(place)
                    order.append(place)
            elif place in begun:
                raise UnsupportedError(f"sizes that node '{nodes[place].name}' reads depend on its result")
            else:
                begun.add(place)
                waiting += sorted(read, reverse=True)
    return [nodes[place] for place in order]


def check_constants(model: onnx.ModelProto, unified: SizedModel, export: SizedModel) -> None:
    """Raise UnsupportedError for constants other than lists of sizes that an export has otherwise.

    unified: one of the exports that the model was made of; what it does not have, nodes compute with.
    """
    known = {tensor.name: tensor for tensor in export.model.graph.initializer}
    own = {tensor.name for tensor in unified.model.graph.initializer}
    for tensor in model.graph.initializer:
        compared = tensor.name in own and tensor.data_type != onnx.TensorProto.INT64
        if compared and known.get(tensor.name) != tensor:
            raise UnsupportedError(f"constant '{tensor.name}' depends on shapes")


def _check_structure(models: Sequence[SizedModel]) -> None:
    """Raise StructureError where nodes differ between exports."""
    graphs = [entry.model.graph for entry in models]
    for same in zip(*(graph.node for graph in graphs), strict=False):
        if any(node != same[0] for node in same):
            raise StructureError(f"node '{same[0].name}' depends on shapes")
    if len({len(graph.node) for graph in graphs}) > 1:
        raise StructureError("the number of nodes depends on shapes")


def _changed(models: Sequence[SizedModel]) -> dict[str, list[Array]]:
    """Constants that differ between exports, by name: those of each export."""
    stored = [{tensor.name: tensor for tensor in entry.model.graph.initializer} for entry in models]
    changed: dict[str, list[Array]] = {}
    for name in dict.fromkeys(name for tensors in stored for name in tensors):
        tensors = [found[name] for found in stored if name in found]
        if len(tensors) < len(stored):
            raise StructureError(f"constant '{name}' depends on shapes")
        if any(tensor != tensors[0] for tensor in tensors):
            changed[name] = [entry.apart.array(tensor) for entry, tensor in zip(models, tensors, strict=True)]
    return changed


def _slice_from_ends(
    node: onnx.NodeProto,
    changed: Mapping[str, Sequence[Array]],
    models: Sequence[SizedModel],
    work: SizeNodes,
) -> None:
    """Count bounds of a Slice from the end where they are as far from it for all shapes."""
    axes = next(
        (
            numpy_helper.to_array(tensor)
            for tensor in models[0].model.graph.initializer
            if len(node.input) > 3 and tensor.name == node.input[3]
        ),
        None,
    )
    operands = [entry.shapes.get(node.input[0]) for entry in models]
    if axes is None or node.input[3] in changed or None in operands:
        return
    extents = np.array([[shape[axis] for axis in axes] for shape in operands if shape is not None])
    for place in (1, 2):
        if node.input[place] not in changed:
            continue
        bounds = np.array(changed[node.input[place]])
        behind = bounds - extents
        same = np.ptp(bounds, axis=0) == 0
        if np.all(same | (np.ptp(behind, axis=0) == 0)):
            found = np.where(same, bounds[0], np.where(behind[0] == 0, ALL, behind[0]))
            node.input[place] = work.constant(node.input[place], found.astype(np.int64))


def _name_dimensions(graph: onnx.GraphProto, models: Sequence[SizedModel], dimensions: Dimensions) -> None:
    """Name dimensions of inputs and outputs."""
    for value in graph.input:
        for axis, dimension in enumerate(dimensions.inputs.get(value.name, ())):
            if isinstance(dimension, str):
                value.type.tensor_type.shape.dim[axis].dim_param = dimension
    for place, value in enumerate(graph.output):
        shapes = [entry.model.graph.output[place].type.tensor_type.shape.dim for entry in models]
        for axis, dimension in enumerate(value.type.tensor_type.shape.dim):
            sizes = [shape[axis].dim_value for shape in shapes]
            if len(set(sizes)) > 1:
                fitting = [size for size in dimensions.fitting(sizes) if dimensions.explain(size)]
                dimension.dim_param = str(fitting[0]) if len(fitting) == 1 else f"{value.name}_{axis}"
