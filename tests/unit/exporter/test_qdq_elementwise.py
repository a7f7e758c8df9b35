"""Exported int8 functions, quotients and choices: onnxruntime's integers are ours, or one step away."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import Quantization, float_type
from qglow.graph.graph import Graph
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Div, Pow, PRelu
from qglow.graph.ops.functions import (
    Exp,
    Log,
    PowerOf,
    Reciprocal,
    Sqrt,
)
from qglow.graph.ops.logic import Compare
from qglow.graph.ops.selection import Max, Min, Where
from tests.suite.functions import FUNCTIONS
from tests.unit.exporter.quantized import OTHER, QuantizedGraph, in_onnxruntime, interpreted

SHAPE = (2, 6, 9, 8)
POSITIVE = Quantization.per_tensor(0.0313, -128)
SIGNED = Quantization.per_tensor(0.0313, -11)
Y = Quantization.per_tensor(0.05, -60)
SMALL = (Exp(), PowerOf(exponent=-1.5), Pow(), Reciprocal())
"""Results grow fast; these are rounded to larger steps."""
OF_POSITIVE = (Log(), Sqrt(), Reciprocal(), PowerOf(exponent=-1.5))


def result(operator: Operator) -> Quantization:
    return Quantization.per_tensor(0.2, -100) if operator in SMALL else Y


def assert_almost_same(graph: Graph, low: float) -> None:
    """No integer is more than a step away, and few are: those where float rounding decides a tie."""
    rng = np.random.default_rng(4)
    feeds = {v.name: rng.uniform(low, 4, v.type.shape).astype(np.float32) for v in graph.inputs}
    expected, _ = interpreted(graph, feeds)
    actual, _ = in_onnxruntime(graph, feeds)
    for name, wanted in expected.items():
        steps = np.abs(actual[name].astype(int) - wanted)
        assert int(steps.max()) <= 1, name
        assert int(steps.sum()) <= 0.05 * steps.size, name


@pytest.mark.parametrize("operator", [f for f in FUNCTIONS if f not in OF_POSITIVE], ids=str)
def test_tables(operator: Operator) -> None:
    work = QuantizedGraph()
    graph = work.finish(work.apply(operator, result(operator), work.input("x", SHAPE, SIGNED)))
    assert_almost_same(graph, -4)


@pytest.mark.parametrize("operator", OF_POSITIVE, ids=str)
def test_tables_of_positive_numbers(operator: Operator) -> None:
    work = QuantizedGraph()
    graph = work.finish(work.apply(operator, result(operator), work.input("x", SHAPE, POSITIVE)))
    assert_almost_same(graph, 0.3)


@pytest.mark.parametrize("operator", [Div(), Div(hi=2.0), Pow(), Max(), Min()], ids=str)
def test_pairs(operator: Operator) -> None:
    work = QuantizedGraph()
    x, z = work.input("x", SHAPE, POSITIVE), work.input("z", (6, 1, 1), OTHER)
    assert_almost_same(work.finish(work.apply(operator, result(operator), x, z)), 0.3)


def test_slopes_stay_float() -> None:
    work = QuantizedGraph()
    x = work.input("x", SHAPE, SIGNED)
    graph = work.finish(work.apply(PRelu(), Y, x, work.floats("slope", 6, 1, 1)))
    assert_almost_same(graph, -4)


def test_choices_by_a_computed_condition() -> None:
    work = QuantizedGraph()
    x, z = work.input("x", SHAPE, SIGNED), work.input("z", SHAPE, OTHER)
    level = work.builder.input("level", float_type(*SHAPE))
    condition = work.builder.node(Compare(relation="greater"), level, work.floats("at", 1))
    assert_almost_same(work.finish(work.apply(Where(), Y, condition, x, z)), -4)
