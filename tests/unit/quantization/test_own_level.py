"""What brings an input to a level of its own, and results back to that of the input, stays float."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import qglow
from qglow.core.types import Array
from qglow.quantization.own_level import in_own_units
from tests.end_to_end.test_dynamic_shapes import decibels
from tests.unit.importer.tiny import save, session, tiny_model

node = helper.make_node
PLACES, STEPS, BANDS = 32, 8, 24


def forecast(
    folder: Path, end: tuple[str, ...] = ("Mul", "Add"), *, layer_behind: bool = False
) -> qglow.Model:
    """STEPS more of a series x [N, 32], computed of x less its mean and over its deviation."""
    random = np.random.default_rng(6)
    constants: dict[str, Array] = {
        name: (random.normal(size=shape) / 5).astype(np.float32)
        for name, shape in {"a": (PLACES, 48), "b": (48, STEPS), "c": (STEPS, STEPS)}.items()
    }
    constants |= {"two": np.array(2, np.float32), "least": np.array(1e-5, np.float32)}
    nodes = [
        node("ReduceMean", ["x"], ["mean"], axes=[1]),
        node("Sub", ["x", "mean"], ["rest"]),
        node("Pow", ["rest", "two"], ["squares"]),
        node("ReduceMean", ["squares"], ["variance"], axes=[1]),
        node("Add", ["variance", "least"], ["positive"]),
        node("Sqrt", ["positive"], ["deviation"]),
        node("Div", ["rest", "deviation"], ["level"]),
        node("MatMul", ["level", "a"], ["hidden"]),
        node("Relu", ["hidden"], ["active"]),
        node("MatMul", ["active", "b"], ["steps"]),
        node(end[0], ["steps", "deviation"], ["wide"]),
        node(end[1], ["wide", "mean"], ["placed" if layer_behind else "y"]),
        *([node("MatMul", ["placed", "c"], ["y"])] if layer_behind else ()),
    ]
    return qglow.load_model(save(tiny_model(nodes, {"x": ("N", PLACES)}, ["y"], constants, opset=17), folder))


def series(scale: float, place: float, seed: int) -> Array:
    random = np.random.default_rng(seed)
    drawn = np.cumsum(random.normal(size=(1, PLACES)), axis=1)
    return (scale * drawn / drawn.std() + place).astype(np.float32)


@pytest.mark.parametrize(("scale", "place"), [(1.0, 0.0), (50.0, 300.0), (0.02, -1.0)])
def test_a_forecast_is_as_good_at_levels_that_no_sample_had(
    scale: float, place: float, tmp_path: Path
) -> None:
    model = forecast(tmp_path)
    profile = model.profile([series(1.0, 0.5, seed) for seed in range(24)])
    plain = model.quantize(profile, repair=False)
    x = series(scale, place, 99)
    wanted = session(model.path).run(None, {"x": x})[0]
    for quantized in (plain, model.quantize(profile)):
        found = quantized.compile(threads=1)({"x": x})["y"]
        assert decibels(found - place, wanted - place) > 25
    reasons = {row.name: row.reason for row in plain.report.float_nodes}
    assert "whose next level nobody knows" in reasons["Mul_10"]
    assert "whose next level nobody knows" in reasons["Div_6"]


def padded_forecast(folder: Path) -> qglow.Model:
    """STEPS more of a series x [N, 32], less its mean over the places that are no padding."""
    random = np.random.default_rng(6)
    constants: dict[str, Array] = {
        name: (random.normal(size=shape) / 5).astype(np.float32)
        for name, shape in {"a": (PLACES, 48), "b": (48, STEPS)}.items()
    }
    constants |= {"one": np.ones(1, np.float32), "axis": np.array([1])}
    nodes = [
        node("Cast", ["padding"], ["left"], to=1),
        node("Sub", ["one", "left"], ["kept"]),
        node("Mul", ["x", "kept"], ["real"]),
        node("ReduceSum", ["real", "axis"], ["sum"]),
        node("ReduceSum", ["kept", "axis"], ["count"]),
        node("Div", ["sum", "count"], ["mean"]),
        node("Sub", ["x", "mean"], ["rest"]),
        node("Mul", ["rest", "kept"], ["level"]),
        node("MatMul", ["level", "a"], ["hidden"]),
        node("Relu", ["hidden"], ["active"]),
        node("MatMul", ["active", "b"], ["steps"]),
        node("Add", ["steps", "mean"], ["y"]),
    ]
    inputs = {"x": ("N", PLACES), "padding": ("N", PLACES)}
    proto = tiny_model(nodes, inputs, ["y"], constants, opset=17)
    proto.graph.input[1].type.tensor_type.elem_type = TensorProto.INT64
    return qglow.load_model(save(proto, folder))


def test_a_series_with_padding_is_measured_too(tmp_path: Path) -> None:
    """The mask of padding comes of integers, and hid what measures the series."""
    model = padded_forecast(tmp_path)
    padding = (np.arange(PLACES) < 4).astype(np.int64)[None]
    samples = [{"x": series(1.0, 0.5, seed), "padding": padding} for seed in range(24)]
    quantized = model.quantize(model.profile(samples))
    given = {"x": series(1.0, 300.0, 99), "padding": padding}
    wanted = session(model.path).run(None, given)[0]
    found = quantized.compile(threads=1)(given)["y"]
    assert decibels(found - 300.0, wanted - 300.0) > 25
    own = {value.name for value in in_own_units(model.graph)}
    assert {"rest", "level"} <= own and not own & {"x", "real", "sum", "count", "mean", "hidden", "y"}


def test_measures_of_an_input_before_a_layer_are_as_other_values(tmp_path: Path) -> None:
    """Ranges of what layers read again are known from calibration, as of gates by the mean of an image."""
    model = forecast(tmp_path, layer_behind=True)
    quantized = model.quantize(model.profile([series(1.0, 0.5, seed) for seed in range(24)]))
    reasons = {row.name: row.reason for row in quantized.report.float_nodes}
    assert "whose next level nobody knows" not in reasons.get("Mul_10", "")


def enhancer(folder: Path) -> qglow.Model:
    """The spectrum x [N, 24], each band times a factor that a network finds by the bands' logarithms."""
    random = np.random.default_rng(8)
    constants: dict[str, Array] = {
        "a": (random.normal(size=(BANDS, 48)) / 5).astype(np.float32),
        "b": (random.normal(size=(48, BANDS)) / 5).astype(np.float32),
        "least": np.array(1e-6, np.float32),
    }
    nodes = [
        node("Abs", ["x"], ["sizes"]),
        node("Add", ["sizes", "least"], ["positive"]),
        node("Log", ["positive"], ["levels"]),
        node("MatMul", ["levels", "a"], ["hidden"]),
        node("Relu", ["hidden"], ["active"]),
        node("MatMul", ["active", "b"], ["found"]),
        node("Sigmoid", ["found"], ["mask"]),
        node("Mul", ["x", "mask"], ["y"]),
    ]
    return qglow.load_model(save(tiny_model(nodes, {"x": ("N", BANDS)}, ["y"], constants, opset=17), folder))


def spectrum(seed: int) -> Array:
    """Bands whose sizes are decades apart."""
    random = np.random.default_rng(seed)
    return (random.normal(size=(1, BANDS)) * np.logspace(2, -2, BANDS)).astype(np.float32)


def test_weak_bands_of_an_input_reach_the_output(tmp_path: Path) -> None:
    model = enhancer(tmp_path)
    quantized = model.quantize(model.profile([spectrum(seed) for seed in range(24)]), repair=False)
    x = spectrum(99)
    wanted = session(model.path).run(None, {"x": x})[0]
    found = quantized.compile(threads=1)({"x": x})["y"]
    assert decibels(found[:, -8:], wanted[:, -8:]) > 20
