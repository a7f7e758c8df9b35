"""Where the error of an int8 graph comes from."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.shape import Reshape
from qglow.quantization.pipeline import quantize
from qglow.recipe.choices import Calibration
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe
from qglow.tuning.sensitivity import CLIPPING, ROUNDING, WEIGHTS, int8_values, sensitivity
from tests.unit.profiling.networks import profile_of, residual_network
from tests.unit.tuning.networks import quantized, runs, sqnr_db


def test_the_prediction_is_near_what_int8_really_loses() -> None:
    result, given = quantized(), runs(20)
    done: list[int] = []
    found = sensitivity(result.source, result.graph, given, advance=done.append)
    real = sqnr_db(result.source, result.graph, given)
    assert abs(found.sqnr_db - real) < 1.5
    assert sum(done) == found.samples == 20


def test_a_range_that_cuts_is_found() -> None:
    rule = Rule(Match(name="pointwise"), calibration=Calibration.parse("percentile:90"))
    options = Recipe(calibration=Calibration.parse("minmax"), rules=(rule,))
    result = quantize(residual_network(), profile_of(30), options)
    found = sensitivity(result.source, result.graph, runs(10))
    worst = max(found.sources, key=lambda source: source.noise)
    assert (worst.value, worst.kind) == ("pointwise", CLIPPING)
    assert worst.noise > 0.5 * found.noise


def test_every_place_counts_once_and_parts_make_the_whole() -> None:
    result = quantized()
    found = sensitivity(result.source, result.graph, runs(4))
    places = [(source.value, source.kind) for source in found.sources]
    assert len(places) == len(set(places))
    assert {value for value, kind in places if kind == WEIGHTS} == {"stem", "depthwise", "pointwise", "y"}
    whole = sum(found.of(value) for value in {value for value, _ in places})
    assert whole == pytest.approx(found.noise)
    assert found.of("stem", ROUNDING, CLIPPING) + found.of("stem", WEIGHTS) == pytest.approx(found.of("stem"))


def moved_network() -> Graph:
    """A convolution whose result is only given another shape before the next one reads it."""
    random = np.random.default_rng(0)
    b = GraphBuilder("moved")
    x = b.input("x", float_type(1, 3, 6, 6))
    w = b.constant("w0", random.normal(size=(8, 3, 1, 1)).astype(np.float32))
    first = b.node(Conv(lo=0.0), x, w, None, name="first")
    moved = b.node(Reshape(shape=(1, 8, 4, 9)), first, name="moved")
    w = b.constant("w1", random.normal(size=(4, 8, 1, 1)).astype(np.float32))
    return b.finish(b.node(Conv(), moved, w, None, name="second"))


def test_what_is_only_moved_is_rounded_once() -> None:
    graph = moved_network()
    result = quantize(graph, profile_of(10, graph=graph), Recipe())
    names = {value.name for value in int8_values(result.graph)}
    assert any("first" in name for name in names) and not any("moved" in name for name in names)
