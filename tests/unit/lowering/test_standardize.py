"""Standardizations over the last axis become one instruction."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from qglow.core.types import float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Value
from qglow.graph.ops.elementwise import Add, Div, Mul, Sub
from qglow.graph.ops.functions import PowerOf, Sqrt
from qglow.graph.ops.normalization import LayerNormalization
from qglow.graph.ops.reduce import ReduceMean
from qglow.instructions.ops.normalization import Standardize
from qglow.instructions.program import Program
from qglow.lowering.driver import lower
from qglow.lowering.standardize import find_standardized_rows

VECTOR = np.linspace(-1, 1, 24, dtype=np.float32)


def instructions(program: Program) -> list[object]:
    return [i.operation for i in program.code if i.operation.touches_memory]


def layer(axis: int = -1, biased: bool = True) -> Graph:
    b = GraphBuilder("layer")
    x = b.input("x", float_type(2, 5, 24))
    shape = (24,) if axis == -1 else (5, 24)
    vectors = [b.constant(n, np.broadcast_to(VECTOR, shape).copy()) for n in ("scale", "bias")[: 1 + biased]]
    return b.finish(b.node(LayerNormalization(axis=axis, epsilon=1e-5), x, *vectors))


def by_squares(change: Callable[[GraphBuilder, dict[str, Value]], Value | None] = lambda b, v: None) -> Graph:
    """A division by the root of the mean of squares; `change` gives another result of the graph."""
    b = GraphBuilder("squares")
    x = b.input("x", float_type(2, 5, 24))
    mean = b.node(ReduceMean((2,)), b.node(PowerOf(2.0), x))
    root = b.node(Sqrt(), b.node(Add(), mean, b.constant("epsilon", np.array([1e-5], np.float32))))
    result = b.node(Mul(), b.constant("scale", VECTOR), b.node(Div(), x, root))
    other = change(b, {"x": x, "mean": mean, "root": root})
    return b.finish(result, *([] if other is None else [other]))


@pytest.mark.parametrize("biased", [True, False])
def test_a_layer_normalization_is_one_instruction(biased: bool) -> None:
    program = lower(layer(biased=biased))
    assert instructions(program) == [Standardize(float(np.float32(1e-5)))]
    found = next(i for i in program.code if i.operation.opcode == "standardize")
    assert (found.optional("shift") is not None) == biased


def test_roots_of_mean_squares_are_one_instruction() -> None:
    wanted = Standardize(float(np.float32(1e-5)), centres=False, divides=True)
    assert instructions(lower(by_squares())) == [wanted]


def test_statistics_over_two_axes_stay_single() -> None:
    assert not any(isinstance(o, Standardize) for o in instructions(lower(layer(axis=1))))


def test_statistics_that_others_read_stay_single() -> None:
    for name in ("mean", "root"):
        graph = by_squares(lambda b, values, name=name: b.node(Sqrt(), values[name]))
        assert not any(isinstance(o, Standardize) for o in instructions(lower(graph))), name


def test_a_mean_that_others_read_is_subtracted_apart() -> None:
    b = GraphBuilder("layer")
    x = b.input("x", float_type(2, 24))
    mean = b.node(ReduceMean((1,)), x)
    centred = b.node(Sub(), x, mean)
    variance = b.node(ReduceMean((1,)), b.node(Mul(), centred, centred))
    root = b.node(Sqrt(), b.node(Add(), variance, b.constant("epsilon", np.array(1e-5, np.float32))))
    graph = b.finish(b.node(Div(), centred, root), mean)
    found = next(o for o in instructions(lower(graph)) if isinstance(o, Standardize))
    assert not found.centres


def test_statistics_of_a_part_of_a_row_stay_single() -> None:
    graph = by_squares()
    x = graph.inputs[0]
    assert len(find_standardized_rows(graph, {x: ((1, "count"),)})) == 1
    assert not find_standardized_rows(graph, {x: ((2, "count"),)})
