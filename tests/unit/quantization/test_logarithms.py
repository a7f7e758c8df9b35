"""Spectra and likelihoods stay float before a logarithm; narrow values do not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from qglow.core.types import Array, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Add, Mul, Sub
from qglow.graph.ops.functions import Abs, Exp, Log, PowerOf, Sigmoid, Sqrt
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.reduce import ReduceMean
from qglow.graph.ops.shape import Reshape
from qglow.profiling.histogram import ValueProfile
from qglow.quantization import logarithms, pipeline
from qglow.quantization.logarithms import keep_logarithms_float, spans_widely
from qglow.quantization.pipeline import quantize_with
from qglow.quantization.placement import FloatReasons
from qglow.recipe.schema import Recipe

RANDOM = np.random.default_rng(2)
SIGNAL = RANDOM.normal(size=(64, 32)).astype(np.float32)
FOURIER = RANDOM.normal(size=(32, 16)).astype(np.float32) * np.logspace(-2, 0, 16, dtype=np.float32)
MEL = np.repeat(np.eye(8, dtype=np.float32), 2, axis=0)


def spectrum() -> Graph:
    """Log of the mel bands of the power of a transform, and a layer behind it."""
    b = GraphBuilder("g")
    waves = b.node(Gemm(), b.input("x", float_type(64, 32)), b.constant("f", FOURIER), name="waves")
    power = b.node(Mul(), waves, waves, name="power")
    bands = b.node(Gemm(), power, b.constant("mel", MEL), name="bands")
    safe = b.node(Add(), bands, b.constant("eps", np.array(1e-6, np.float32)), name="safe")
    levels = b.node(Log(), safe, name="levels")
    return b.finish(b.node(Gemm(), levels, b.constant("w", MEL.T.copy()), name="y"))


def magnitudes() -> Graph:
    """Root of the sum of the squares of two transforms, and a layer behind it."""
    b = GraphBuilder("g")
    x = b.input("x", float_type(64, 32))
    waves = [
        b.node(Gemm(), x, b.constant(f"{n}_w", FOURIER * s), name=n) for n, s in (("re", 1.0), ("im", 0.5))
    ]
    squares = [b.node(PowerOf(2.0), wave, name=f"{wave.name}2") for wave in waves]
    total = b.node(Add(), *squares, name="power")
    levels = b.node(Sqrt(), total, name="levels")
    return b.finish(b.node(Gemm(), levels, b.constant("w", np.eye(16, dtype=np.float32)), name="y"))


def statistics(graph: Graph, x: Array) -> dict[str, ValueProfile]:
    found: dict[str, ValueProfile] = {}

    def see(value: object, array: Array) -> None:
        name = value.name  # type: ignore[attr-defined]
        found[name] = ValueProfile.of_shape(array.shape)
        found[name].observe(array)

    Interpreter(graph).run({"x": x}, see)
    return found


def kept(graph: Graph, x: Array) -> dict[str, str]:
    reasons: FloatReasons = {}
    keep_logarithms_float(graph, statistics(graph, x), reasons)
    return {node.output.name: reason for node, reason in reasons.items()}


def test_the_chain_of_a_wide_spectrum_stays_float_with_its_transform() -> None:
    found = kept(spectrum(), SIGNAL)
    assert set(found) == {"levels", "safe", "bands", "power", "waves"}
    why = "the Log 'levels' is taken of its squares: rounding would drown weak bands"
    assert found.pop("waves") == why
    assert all("'levels' is taken of it: int8 would make the small values" in why for why in found.values())


def squared(operator: Operator | None, hidden: Operator | None, bound: float = math.inf) -> Graph:
    """Log of a function of a linear layer, of a signal less its mean or of a layer with a function."""
    b = GraphBuilder("g")
    x = b.input("x", float_type(64, 32))
    signal = b.node(Sub(), x, b.node(ReduceMean(axes=(1,), keepdims=True), x, name="mean"), name="signal")
    if hidden is not None:
        layer = b.node(Gemm(), signal, b.constant("h", np.eye(32, dtype=np.float32)), name="layer")
        signal = b.node(hidden, layer, name="hidden")
    waves = b.node(Gemm(hi=bound), signal, b.constant("f", FOURIER), name="waves")
    power = b.node(Mul(), waves, waves) if operator is None else b.node(operator, waves)
    safe = b.node(Add(), power, b.constant("eps", np.array(1e-9, np.float32)), name="safe")
    return b.finish(b.node(Log(), safe, name="levels"))


@pytest.mark.parametrize("operator", [None, PowerOf(2.0), Abs()], ids=["product", "power", "magnitude"])
def test_what_prepares_the_signal_of_a_transform_stays_float_too(operator: Operator | None) -> None:
    assert {"waves", "signal", "mean"} <= set(kept(squared(operator, None), SIGNAL))


def test_layers_that_only_cut_frames_are_no_obstacle() -> None:
    found = kept(squared(None, Reshape((64, 32))), SIGNAL)
    assert {"waves", "hidden", "layer", "signal"} <= set(found)


@pytest.mark.parametrize(
    ("operator", "hidden", "bound"),
    [
        (None, Sigmoid(), math.inf),  # a network's own result
        (None, None, 3.0),  # a bounded layer
        (Exp(), None, math.inf),  # a likelihood, no square
    ],
)
def test_layers_of_a_network_stay_int8_before_a_logarithm(
    operator: Operator | None, hidden: Operator | None, bound: float
) -> None:
    found = kept(squared(operator, hidden, bound), SIGNAL)
    assert "levels" in found and not {"waves", "signal", "layer"} & set(found)


def test_weak_bands_do_not_drown(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = squared(None, None)
    assert not quantize_with(graph, statistics(graph, SIGNAL), 1, Recipe()).report.quantized
    monkeypatch.setattr(logarithms, "_transforms", lambda chain: iter(()))
    rounded = quantize_with(graph, statistics(graph, SIGNAL), 1, Recipe())
    assert "Gemm" in {node.operator for node in rounded.report.quantized}
    exact, found = (Interpreter(each).run({"x": SIGNAL})["levels"] for each in (graph, rounded.graph))
    assert float(np.abs(found - exact).max()) > 1.0


def test_squares_under_a_root_stay_float_back_to_their_transforms(monkeypatch: pytest.MonkeyPatch) -> None:
    found = kept(magnitudes(), SIGNAL)
    assert set(found) == {"levels", "power", "re2", "im2"}
    assert all("the Sqrt 'levels' is taken of it" in why for why in found.values())
    better = error(magnitudes())
    monkeypatch.setattr(pipeline, "keep_logarithms_float", lambda *given: None)
    assert error(magnitudes()) > 2.0 * better


def test_the_root_of_a_sum_along_an_axis_may_be_int8() -> None:
    b = GraphBuilder("g")
    waves = b.node(Gemm(), b.input("x", float_type(64, 32)), b.constant("f", FOURIER), name="waves")
    squares = b.node(PowerOf(2.0), waves, name="squares")
    length = b.node(ReduceMean(axes=(1,)), squares, name="mean")
    assert kept(b.finish(b.node(Sqrt(), length, name="y")), SIGNAL * SIGNAL**4) == {}


def test_a_narrow_value_does_not() -> None:
    b = GraphBuilder("g")
    x = b.input("x", float_type(64, 32))
    graph = b.finish(b.node(Log(), b.node(Add(), x, x, name="twice"), name="y"))
    assert kept(graph, np.abs(SIGNAL) * 0 + RANDOM.uniform(1, 4, (64, 32)).astype(np.float32)) == {}


def test_width_is_the_share_below_one_step() -> None:
    def profile(values: Array) -> ValueProfile:
        found = ValueProfile()
        found.observe(np.asarray(values, np.float32).reshape(1, -1))
        return found

    assert not spans_widely(None) and not spans_widely(profile(np.zeros(10)))
    assert spans_widely(profile(np.array([1e-4] * 2 + [1.0] * 8)))
    assert not spans_widely(profile(np.array([1e-4] + [1.0] * 19)))
    assert spans_widely(profile(np.array([-1e-4] * 2 + [-1.0] * 8)))


def error(graph: Graph) -> float:
    """Power of the error of an int8 graph, relative to that of the result."""
    expected = Interpreter(graph).run({"x": SIGNAL})["y"]
    result = quantize_with(graph, statistics(graph, SIGNAL), 1, Recipe())
    assert result.report.quantized
    found = Interpreter(result.graph).run({"x": SIGNAL})["y"]
    return float(np.square(expected - found).mean() / np.square(expected).mean())


def test_the_model_keeps_its_small_values(monkeypatch: pytest.MonkeyPatch) -> None:
    kept_float = error(spectrum())
    monkeypatch.setattr(pipeline, "keep_logarithms_float", lambda *_: None)
    assert kept_float < 0.3 * error(spectrum())
    assert kept_float < 0.01
