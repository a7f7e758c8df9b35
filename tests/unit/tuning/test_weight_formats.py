"""Formats of weights, layer by layer: noise at the outputs, and the choice within a size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import qglow
from qglow.cli.main import main
from qglow.core.errors import UsageError
from qglow.recipe.choices import BlockFormat
from qglow.tuning.weight_formats import FormatNoise, LayerFormats, choose_formats, format_bytes, format_noises

DEPTH, LOUD = 64, 40.0


def network() -> onnx.ModelProto:
    """Three products, one before a Relu; the results of the second are much larger than the others."""
    rng = np.random.default_rng(3)
    weights = {name: rng.normal(size=(DEPTH, DEPTH)).astype(np.float32) / 8 for name in ("a", "b", "c")}
    weights["b"] *= LOUD
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["first"], name="first"),
        helper.make_node("Relu", ["first"], ["positive"], name="relu"),
        helper.make_node("MatMul", ["positive", "b"], ["loud"], name="loud"),
        helper.make_node("MatMul", ["positive", "c"], ["quiet"], name="quiet"),
        helper.make_node("Add", ["loud", "quiet"], ["y"], name="sum"),
    ]
    graph = helper.make_graph(
        nodes,
        "three",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, DEPTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, DEPTH])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def model() -> qglow.Model:
    return qglow.load_model(network())


@pytest.fixture(scope="module")
def data() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(4).normal(size=(32, DEPTH)).astype(np.float32)}


def by_layer(mix: qglow.WeightMix) -> dict[str, str]:
    return {layer.layer: layer.format for layer in mix.layers}


def sqnr(model: qglow.Model, quantized: qglow.QuantizedModel, x: np.ndarray) -> float:
    """SQNR of the outputs over batches of 4 rows."""
    real, found = (
        np.concatenate([program({"x": part})["y"] for part in np.split(x, len(x) // 4)]).astype(np.float64)
        for program in (model.compile(), quantized.compile())
    )
    return float(10 * np.log10(np.sum(real**2) / np.sum((found - real) ** 2)))


def test_the_prediction_is_what_is_measured(model: qglow.Model, data: dict[str, np.ndarray]) -> None:
    for bits in ("4.6bits", "6bits", "9bits"):
        mix = qglow.mix_weights(model, data, bits)
        measured = sqnr(model, model.quantize(recipe=mix.recipe), data["x"])
        assert measured == pytest.approx(mix.sqnr_db, abs=1.0)


def test_a_layer_behind_an_activation_has_the_noise_that_it_has_alone(
    model: qglow.Model, data: dict[str, np.ndarray]
) -> None:
    graph = model._loaded.graph
    runs = [{"x": part} for part in np.split(data["x"], 8)]
    (first,) = (node for node in graph.nodes if node.name == "first")
    (found,) = format_noises(graph, [first], runs, [BlockFormat(4, 32)])
    rule = qglow.Rule(qglow.Match(name=first.name), weights=BlockFormat(4, 32))
    recipe = qglow.Recipe(weights=BlockFormat(8), keep_float=("loud", "quiet"), rules=(rule,))
    measured = sqnr(model, model.quantize(recipe=recipe), data["x"])
    assert -10 * np.log10(found.formats[0].noise) == pytest.approx(measured, abs=0.01)


def test_bytes_go_where_the_outputs_feel_them(model: qglow.Model, data: dict[str, np.ndarray]) -> None:
    found = by_layer(qglow.mix_weights(model, data, "7bits"))
    bits = {name: BlockFormat.parse(text).bits for name, text in found.items()}
    assert bits["quiet"] < max(bits.values()), "a sum of which it is a small part hides its noise"
    assert bits["loud"] == 8


@pytest.mark.parametrize("bits", [4.6, 5.0, 6.0, 8.5])
def test_what_is_stored_keeps_to_the_size(
    model: qglow.Model, data: dict[str, np.ndarray], bits: float
) -> None:
    mix = qglow.mix_weights(model, data, f"{bits} bits")
    quantized = model.quantize(recipe=mix.recipe)
    assert mix.bits <= bits
    sizes = 0
    for node in quantized.graph.nodes:
        if node.operator.weight_blocks is not None:
            stored = (node.operand(name) for name in ("w", "scales", "zero_points"))
            sizes += sum(
                value.data.nbytes for value in stored if value is not None and value.data is not None
            )
    assert sizes == mix.bytes


def test_no_more_bytes_are_spent_than_the_quality_needs(
    model: qglow.Model, data: dict[str, np.ndarray]
) -> None:
    enough = qglow.mix_weights(model, data, "1M", enough_db=25.0)
    assert enough.sqnr_db >= 25.0
    assert enough.bytes < qglow.mix_weights(model, data, "1M").bytes
    with pytest.raises(UsageError, match=r"by prediction, less than 200 dB; allow more"):
        qglow.mix_weights(model, data, "1M", enough_db=200.0)


def test_layers_that_the_recipe_keeps_are_left_out(model: qglow.Model, data: dict[str, np.ndarray]) -> None:
    found = qglow.mix_weights(model, data, "5bits", recipe=qglow.Recipe(keep_float=("quiet",)))
    assert set(by_layer(found)) == {"first", "loud"}


def test_the_largest_gain_for_each_byte_comes_first() -> None:
    small, large = BlockFormat(4), BlockFormat(8)
    layers = [
        LayerFormats("a", 100, (FormatNoise(small, 50, 0.30), FormatNoise(large, 100, 0.10))),
        LayerFormats("b", 100, (FormatNoise(small, 50, 0.50), FormatNoise(large, 100, 0.05))),
    ]
    assert {name: x.bytes for name, x in choose_formats(layers, 160).items()} == {"a": 50, "b": 100}
    assert {name: x.bytes for name, x in choose_formats(layers, 200).items()} == {"a": 100, "b": 100}
    assert {name: x.bytes for name, x in choose_formats(layers, 200, 0.4).items()} == {"a": 50, "b": 100}
    with pytest.raises(UsageError, match=r"weights take 100 bytes .* 4\.00 bits each, and 99 bytes are"):
        choose_formats(layers, 99)


def test_a_step_that_does_not_fit_makes_way_for_a_smaller_one() -> None:
    forms = (
        FormatNoise(BlockFormat(2), 10, 1.0),
        FormatNoise(BlockFormat(4), 20, 0.9),
        FormatNoise(BlockFormat(8), 40, 0.0),
    )
    assert choose_formats([LayerFormats("a", 40, forms)], 30)["a"].bytes == 20


def test_bytes_are_codes_scales_and_zero_points() -> None:
    weights = np.zeros((100, 3), np.float32)
    assert format_bytes(weights, BlockFormat(4, 32, symmetric=True)) == 3 * (50 + 4 * 4)
    assert format_bytes(weights, BlockFormat(4, 32)) == 3 * (50 + 4 * 4 + 2)
    assert format_bytes(weights, BlockFormat(4, 32, float16=True)) == 3 * (50 + 4 * 2 + 2)
    assert format_bytes(weights, BlockFormat(8, 32, float16=True)) == 3 * (100 + 4 * 2 + 4)


@pytest.mark.parametrize("size", ["five", "-3K", "0", "bits"])
def test_no_size_is_refused(model: qglow.Model, data: dict[str, np.ndarray], size: str) -> None:
    with pytest.raises(UsageError, match=r"is no size: .*or bits a weight: 4\.5bits"):
        qglow.mix_weights(model, data, size)


@pytest.fixture
def files(tmp_path: Path, data: dict[str, np.ndarray]) -> tuple[Path, Path, Path]:
    """Model, samples, and a recipe that is not there yet."""
    onnx.save(network(), tmp_path / "three.onnx")
    np.savez(tmp_path / "x.npz", **data)
    return tmp_path / "three.onnx", tmp_path / "x.npz", tmp_path / "mix.yaml"


def test_the_command_writes_a_recipe_that_quantize_takes(
    files: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, samples, recipe = files
    given = ["tune", str(path), "--data", str(samples), "--calibration-data", str(samples)]
    assert main([*given, "--max-size", "6bits", "-o", str(recipe)]) == 0
    out = capsys.readouterr().out
    assert "bits each with scales and zero points" in out and "loud" in out
    assert main(["quantize", str(path), "--recipe", str(recipe), "-o", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "model.qdq.onnx").exists()


def test_the_command_writes_no_recipe_that_misses_the_quality(
    files: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, samples, recipe = files
    other = tmp_path / "other.npz"
    np.savez(other, x=np.random.default_rng(9).normal(size=(8, DEPTH)).astype(np.float32))
    given = ["tune", str(path), "--data", str(other), "--calibration-data", str(samples), "-o", str(recipe)]
    assert main([*given, "--max-size", "5bits", "--min-sqnr", "60"]) == 2
    assert "allow more" in capsys.readouterr().err
    capsys.readouterr()
    useless = ["--max-drop", "1", "--scheduler", "tcp://x:1", "--time-limit", "9s", "--state", "s.json"]
    assert main([*given, "--max-size", "5bits", *useless]) == 2
    told = capsys.readouterr().err
    assert all(flag in told for flag in useless if flag.startswith("--"))
    assert main([*given, "--max-drop", "1"]) == 2
    assert "give the profile" in capsys.readouterr().err
    assert not recipe.exists()


def test_data_on_which_the_quality_is_missed_fails_the_command(
    files: tuple[Path, Path, Path],
    model: qglow.Model,
    data: dict[str, np.ndarray],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, samples, recipe = files
    mix = qglow.mix_weights(model, data, "6bits")
    x = np.random.default_rng(9).normal(size=(400, DEPTH)).astype(np.float32)
    quantized = model.quantize(recipe=mix.recipe)
    worst = min(np.split(x, 100), key=lambda rows: sqnr(model, quantized, rows))
    np.savez(tmp_path / "worst.npz", x=worst)
    given = ["tune", str(path), "--calibration-data", str(samples), "--max-size", "6bits", "-o", str(recipe)]
    given += ["--min-sqnr", str(mix.sqnr_db - 0.001)]
    assert main([*given, "--data", str(tmp_path / "worst.npz")]) == 1
    assert "no recipe is written" in capsys.readouterr().err
    assert not recipe.exists()
