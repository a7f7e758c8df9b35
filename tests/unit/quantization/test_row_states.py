"""States of rows in int8: what is kept, what the graph reads, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.errors import UnsupportedError
from qglow.core.types import Array, ElementType, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.interpreter import interpret
from qglow.graph.ops.reduce import ReduceMax
from qglow.graph.ops.shape import Concat
from qglow.numerics.rows import row_scales
from qglow.quantization.row_states import keep_rows_in_int8, scales_name

RANDOM = np.random.default_rng(6)
PAST, NEW, DEPTH = 5, 3, 8
STATES = {"before": "after"}


def network(axis: int = 1, rest: str = "") -> Graph:
    """A state [2, 5, 8] joined by [2, 3, 8], and the largest elements of all."""
    b = GraphBuilder("g")
    before = b.input("before", float_type(2, PAST, DEPTH))
    shape = [2, PAST, DEPTH]
    shape[axis] = NEW
    new = b.input("new", float_type(*shape))
    parts = (new, before) if rest == "behind" else (before, new)
    after = b.node(Concat(axis=axis), *parts, name="after")
    results = [after, b.node(ReduceMax(axes=(1,), keepdims=False), after, name="top")]
    if rest == "read":
        results.append(b.node(ReduceMax(axes=(1,), keepdims=False), before, name="early"))
    return b.finish(*results)


def test_rows_are_measured_once_and_read_as_integers_times_scales() -> None:
    found = keep_rows_in_int8(network(), STATES)
    kinds = {value.name: value.type for value in (*found.inputs, *found.outputs)}
    assert kinds["before"].element is kinds["after"].element is ElementType.INT8
    assert kinds["after"].is_plain_integer and kinds["after"].shape == (2, PAST + NEW, DEPTH)
    assert kinds[scales_name("before")] == float_type(2, PAST, 1)
    new = RANDOM.normal(size=(2, NEW, DEPTH)).astype(np.float32)
    new[0, 1], new[1, 2, 3], new[1, 0] = 0.0, np.inf, new[1, 0] * np.float32(1e-38)
    codes = RANDOM.integers(-127, 128, (2, PAST, DEPTH)).astype(np.int8)
    scales = RANDOM.uniform(0.1, 1, (2, PAST, 1)).astype(np.float32)
    given = {"new": new, "before": codes, scales_name("before"): scales}
    results = interpret(found, given)
    own = row_scales(new)
    with np.errstate(invalid="ignore"):
        rounded = np.nan_to_num(np.rint(np.clip(new / own, -127, 127)))
    whole = np.concatenate([codes, rounded.astype(np.int8)], 1)
    factors = np.concatenate([scales, own], 1)
    assert np.array_equal(results["after"], whole)
    assert results[scales_name("after")].tobytes() == factors.tobytes()
    real: Array = whole.astype(np.float32) * factors
    assert np.array_equal(results["top"], real.max(1), equal_nan=True) and np.isnan(results["top"][1]).all()
    assert network().outputs[0].type.is_float


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (network(axis=2), "new places join it along the last axis"),
        (network(rest="behind"), "output 'after' is not the state in float, followed by new rows"),
        (network(rest="read"), "the model reads it before new rows join it"),
    ],
)
def test_other_states_are_refused(graph: Graph, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=f"state 'before' has no rows in int8: {reason}"):
        keep_rows_in_int8(graph, STATES)
