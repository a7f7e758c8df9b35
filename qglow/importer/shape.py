"""Import of shapes: reshapes, transposes, concatenation, casts, constants.

Shapes are static once inputs are bound, so Shape gives a constant, and arithmetic on shapes is
folded as it is imported.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from qglow.core.memory import require_more_memory
from qglow.core.types import HALF_TYPES, ElementType
from qglow.graph.graph import Value
from qglow.graph.ops.functions import RoundTo
from qglow.graph.ops.shape import Cast, Concat, Identity, Reshape, Transpose
from qglow.importer.node import ImportNode, ImportRule
from qglow.importer.tensors import BORDER, ELEMENTS, HALVES, element_name
from qglow.numerics.logic import cast


def import_reshape(node: ImportNode) -> None:
    """Import Reshape to a constant shape; 0 copies a dimension, -1 takes what is left."""
    shape = node.kind().shape
    wanted = [int(d) for d in node.array(1, "the new shape").reshape(-1)]
    if node.integer("allowzero", 0) == 0:
        node.require(
            all(d != 0 or i < len(shape) for i, d in enumerate(wanted)),
            f"shape {wanted} copies a dimension that {list(shape)} does not have",
        )
        wanted = [shape[i] if d == 0 else d for i, d in enumerate(wanted)]
    _reshape(node, wanted)


def import_flatten(node: ImportNode) -> None:
    """Import Flatten to a matrix: dimensions before the axis become rows."""
    shape = node.kind().shape
    axis = node.integer("axis", 1)
    node.require(
        -len(shape) <= axis <= len(shape), f"axis {axis} is out of range for {len(shape)} dimensions"
    )
    axis = axis + len(shape) if axis < 0 else axis
    _reshape(node, [math.prod(shape[:axis]), math.prod(shape[axis:])])


def import_squeeze(node: ImportNode) -> None:
    """Import Squeeze; without axes every dimension of size 1 is removed."""
    shape = node.kind().shape
    axes = _axes(node, len(shape))
    if axes is None:
        axes = [i for i, d in enumerate(shape) if d == 1]
    node.require(all(shape[a] == 1 for a in axes), f"axes {axes} of {list(shape)} are not all of size 1")
    _reshape(node, [d for i, d in enumerate(shape) if i not in axes])


def import_unsqueeze(node: ImportNode) -> None:
    """Import Unsqueeze; axes count in the output."""
    shape = list(node.kind().shape)
    count = len(_raw_axes(node) or [])
    axes = _axes(node, len(shape) + count) or []
    node.require(len(set(axes)) == count, f"axes {axes} name a dimension twice")
    for axis in sorted(axes):
        shape.insert(axis, 1)
    _reshape(node, shape)


def _reshape(node: ImportNode, wanted: Sequence[int]) -> None:
    size = node.kind().size
    known = math.prod(d for d in wanted if d != -1)
    node.require(list(wanted).count(-1) <= 1, f"shape {list(wanted)} has more than one -1")
    if -1 in wanted:
        fits = known > 0 and size % known == 0
        node.require(fits, f"{list(node.kind().shape)} does not reshape to {list(wanted)}")
        wanted = [size // known if d == -1 else d for d in wanted]
    node.require(
        math.prod(wanted) == size and min(wanted, default=0) >= 0,
        f"{list(node.kind().shape)} does not reshape to {list(wanted)}; "
        "where the model fixes the batch, bind its input to that batch",
    )
    node.emit(Reshape(shape=tuple(wanted)), node.value(0))


def _raw_axes(node: ImportNode) -> list[int] | None:
    """Axes as stated: an attribute before opset 13, a constant input from then on."""
    if node.opset < 13:
        return list(node.integers("axes", ())) if node.has("axes") else None
    axes = node.optional_array(1, "the axes")
    return None if axes is None else [int(a) for a in axes.reshape(-1)]


def _axes(node: ImportNode, rank: int) -> list[int] | None:
    axes = _raw_axes(node)
    return None if axes is None else [node.axis(a, rank) for a in axes]


def import_transpose(node: ImportNode) -> None:
    """Import Transpose; without perm the dimensions are reversed."""
    rank = node.rank()
    perm = node.integers("perm", tuple(reversed(range(rank))))
    node.require(sorted(perm) == list(range(rank)), f"perm {list(perm)} does not permute {rank} dimensions")
    node.emit(Transpose(perm=perm), node.value(0))
    known = node.context.blocks.get(node.value(0).name)
    if known is not None and perm == (1, 0):
        node.context.blocks[node.proto.output[0]] = known.transposed(node.context.derived)


def import_concat(node: ImportNode) -> None:
    """Import Concat along an axis."""
    node.require(node.has("axis"), "attribute axis is missing")
    axis = node.axis(node.integer("axis", 0), node.rank())
    node.emit(Concat(axis=axis), *(node.value(i) for i in range(len(node.inputs))))


def joined(node: ImportNode, values: Sequence[Value], part: str, axis: int = 0) -> Value:
    """Put tensors behind one another along an axis, as a part of a node."""
    return node.emit(Concat(axis=axis), *values, part=part)


def import_shape(node: ImportNode) -> None:
    """Import Shape, or a part of it, as a constant."""
    shape = node.kind().shape
    start, end = node.integer("start", 0), node.integer("end", len(shape))
    node.constant(np.array(shape[slice(start, end)], np.int64))


def import_cast(node: ImportNode) -> None:
    """Import Cast between the element types that qglow has."""
    node.ignore("saturate", "round_mode")  # these govern 8-bit floats only
    to = node.integer("to", 0)
    known = ELEMENTS | HALVES
    kinds = ", ".join(sorted(e.name.lower() for e in known.values()))
    node.require(to in known, f"cast to {element_name(to)}; supported are {kinds}")
    _cast(node, node.value(0), known[to])


def import_cast_like(node: ImportNode) -> None:
    """Import CastLike: a Cast to the element type of the second input, of which nothing else matters."""
    node.ignore("saturate", "round_mode")
    like = node.value(1)
    _cast(node, node.value(0), node.context.reals.get(like.name, like.type.element))


def import_bit_cast(node: ImportNode) -> None:
    """Import BitCast between integers, which is a Cast that wraps; of constants between all types."""
    to, x = node.integer("to", 0), node.value(0)
    node.require(to in ELEMENTS, f"a result of {element_name(to)}")
    element, found = ELEMENTS[to], x.type.element
    node.require(not x.type.is_quantized and found.size == element.size, f"{x.type} as {element_name(to)}")
    if x.data is not None:
        node.constant(x.data.view(element.dtype))
        return
    real = x.type.is_float or element in (ElementType.FLOAT, ElementType.DOUBLE)
    node.require(not real, f"the bits of computed {x.type} as {element_name(to)}; integers are supported")
    node.require(element is not ElementType.BOOL, "integers as bool, which may have none of its bits")
    node.emit(Cast(to=element), x)


def _cast(node: ImportNode, x: Value, element: ElementType) -> None:
    """Cast as the node's output. Computed reals of 16 and 64 bits are float32 here.

    They are rounded to 16 bits only where that may be meant, and not a matter of the model's precision:
    where nothing but casts reads them.
    """
    if x.data is not None and not x.type.is_quantized:
        node.constant(cast(x.data, element))
        return
    if element not in BORDER.values():
        node.emit(Identity() if element is x.type.element else Cast(to=element), x)
        return
    output = node.proto.output[0]
    node.context.reals[output] = element
    readers = node.context.readers.get(output, set())
    name = next((name for name, found in HALF_TYPES.items() if found is element), None)
    rounds = name is not None and readers and readers <= {"Cast", "CastLike"}
    if x.type.is_float:
        node.emit(RoundTo(name) if rounds and name else Identity(), x)
    elif rounds and name and x.type.element is not element:
        node.emit(RoundTo(name), node.emit(Cast(to=ElementType.FLOAT), x, part="float"))
    else:
        node.emit(Cast(to=ElementType.FLOAT), x)


def import_identity(node: ImportNode) -> None:
    """Import Identity."""
    node.emit(Identity(), node.value(0))


def import_dropout(node: ImportNode) -> None:
    """Import Dropout as it is at inference: nothing."""
    node.ignore("ratio", "seed", "is_test")
    training = node.optional_array(2, "the training mode")
    drops = training is not None and training.any() and node.scalar(1, "the ratio", 0.5) != 0
    node.require(not drops, "training_mode true; export the model for inference")
    node.emit(Identity(), node.value(0))
    if node.is_used(1):
        node.require(node.opset >= 10, "its mask is used")
        size = node.kind().size
        require_more_memory(size, f"node '{node.name}'")
        node.emit(Identity(), node.part_constant("mask", np.ones(node.kind().shape, np.bool_)), output=1)


def import_constant(node: ImportNode) -> None:
    """Import Constant given as a tensor or as one or several numbers."""
    if node.has("value"):
        node.constant(node.tensor("value"))
    elif node.has("value_float"):
        node.constant(np.array(node.number("value_float", 0.0), np.float32))
    elif node.has("value_floats"):
        node.constant(np.array(node.numbers("value_floats"), np.float32))
    elif node.has("value_int"):
        node.constant(np.array(node.integer("value_int", 0), np.int64))
    elif node.has("value_ints"):
        node.constant(np.array(node.integers("value_ints", ()), np.int64))
    else:
        node.refuse("only value, value_float(s) and value_int(s) are supported")


RULES: dict[str, ImportRule] = {
    "BitCast": ImportRule(import_bit_cast, newest=26),
    "Cast": ImportRule(import_cast, newest=28, reads_halves=True),
    "CastLike": ImportRule(import_cast_like, newest=25, reads_halves=True),
    "Concat": ImportRule(import_concat, newest=13),
    "Constant": ImportRule(import_constant, newest=25),
    "Dropout": ImportRule(import_dropout, newest=22),
    "Flatten": ImportRule(import_flatten, newest=25),
    "Identity": ImportRule(import_identity, newest=25),
    "Reshape": ImportRule(import_reshape, newest=25),
    "Shape": ImportRule(import_shape, newest=25),
    "Squeeze": ImportRule(import_squeeze, newest=25),
    "Transpose": ImportRule(import_transpose, newest=25),
    "Unsqueeze": ImportRule(import_unsqueeze, newest=25),
}
