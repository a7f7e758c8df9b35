"""Plain integers: arithmetic that wraps around, comparisons, casts, reductions and ranking."""

from __future__ import annotations

import numpy as np

from qglow.core.types import ElementType, TensorType
from qglow.graph.graph import Value
from qglow.graph.ops.elementwise import Add, Div, Mul, Pow, Sub
from qglow.graph.ops.functions import Neg
from qglow.graph.ops.logic import Compare, Whole
from qglow.graph.ops.ranking import ArgMax, ArgMin, TopK, TopKIndices
from qglow.graph.ops.reduce import CumSum, ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum
from qglow.graph.ops.selection import Max, Min, Where
from qglow.graph.ops.shape import Cast
from qglow.numerics.integers import OPERATIONS
from tests.suite.problem import Drawing, Maker, Problem

SHAPE = (3, 21)


def _drawn(drawing: Drawing, element: ElementType, name: str) -> Value:
    """An input with every bit at random, and the ends of the type, 0, 1 and -1 among them."""
    ends = np.iinfo(element.dtype)
    values = drawing.random.integers(ends.min, ends.max, SHAPE, element.dtype, endpoint=True)
    values[:, :4] = [0, 1, ends.min, ends.max]
    values[:, 4] = np.array(-1).astype(element.dtype)
    drawing.inputs[name] = drawing.random.permuted(values, axis=1)
    return drawing.builder.input(name, TensorType(element, SHAPE))


def arithmetic(element: ElementType) -> Maker:
    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"arithmetic {element.value}", random)
        a, b = (_drawn(drawing, element, name) for name in "ab")
        node = drawing.builder.node
        few = drawing.builder.constant("few", np.arange(SHAPE[1]).astype(element.dtype))
        results = [node(operator, a, b) for operator in (Add(), Sub(), Mul(), Div(), Pow(), Max(), Min())]
        results += [node(Whole(operation=name), a, b) for name in OPERATIONS]
        results += [node(Whole(operation=name), a, few) for name in ("left", "right", "modulo")]
        less = node(Compare(relation="less"), a, b)
        chosen = node(Where(), less, a, node(Neg(), b))
        others = (ElementType.FLOAT, ElementType.INT64, ElementType.UINT16, ElementType.BOOL)
        casts = [node(Cast(to=to), chosen) for to in others if to is not element]
        back = node(Cast(to=element), node(Cast(to=ElementType.FLOAT), a))
        return drawing.finish(*results, less, chosen, *casts, back)

    return make


def choices(element: ElementType, axis: int) -> Maker:
    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"choices {element.value} {axis}", random)
        x, node = _drawn(drawing, element, "x"), drawing.builder.node
        kinds = (ReduceSum, ReduceProd, ReduceMax, ReduceMin, *([ReduceMean] if element.size > 2 else []))
        reduced = [node(kind((axis,), False), x) for kind in kinds]
        reduced += [node(CumSum(axis, turned, not turned), x) for turned in (False, True)]
        first = [node(TopK(axis, 3, largest), x) for largest in (True, False)]
        return drawing.finish(*reduced, *first, node(ArgMin(axis), x), node(TopKIndices(axis, 2), x))

    return make


def last_ranks(element: ElementType, extent: int, axis: int) -> Maker:
    """All elements in order, of which few are different and the ends of the type are among them."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"last ranks {element.value} {extent} {axis}", random)
        shape = (extent, 5) if axis == 0 else (5, extent)
        ends = np.iinfo(element.dtype)
        few = np.array([ends.min, ends.min + 1, ends.max - 1, ends.max], element.dtype)
        drawing.inputs["x"] = random.choice(few, shape)
        drawing.inputs["x"][0] = ends.min
        drawing.inputs["x"][:, 1] = ends.max
        x, node = drawing.builder.input("x", TensorType(element, shape)), drawing.builder.node
        ranked = [kind(axis, extent, largest) for kind in (TopK, TopKIndices) for largest in (True, False)]
        places = [kind(axis, last=last) for kind in (ArgMax, ArgMin) for last in (True, False)]
        return drawing.finish(*(node(operator, x) for operator in (*ranked, *places)))

    return make


KINDS = (ElementType.INT32, ElementType.INT64, ElementType.UINT8, ElementType.UINT64)
PROBLEMS: list[Maker] = [
    *(arithmetic(element) for element in KINDS),
    choices(ElementType.INT64, 1),
    choices(ElementType.UINT64, 0),
    choices(ElementType.UINT8, 1),
    *(
        last_ranks(element, extent, axis)
        for element in (ElementType.INT64, ElementType.UINT64)
        for extent, axis in ((4, 1), (35, 1), (16, 1), (9, 0))
    ),
]
