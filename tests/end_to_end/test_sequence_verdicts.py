"""Verdicts on models whose outputs are signals, or scores at positions, of a length that the data decides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import qglow
from qglow.cli.main import main
from qglow.core.types import Array

RANDOM = np.random.default_rng(5)


def _saved(
    path: Path, nodes: list[object], taken: list[object], given: list[object], weights: dict[str, Array]
) -> Path:
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, taken)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, given)
    graph = helper.make_graph(nodes, "g", [x], [y], held)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def _filter(path: Path) -> Path:
    """A filter of a signal [batch, N], by a convolution."""
    nodes = [
        helper.make_node("Unsqueeze", ["x", "one"], ["channel"]),
        helper.make_node("Conv", ["channel", "w"], ["filtered"], pads=[2, 2]),
        helper.make_node("Squeeze", ["filtered", "one"], ["y"]),
    ]
    weights = {"one": np.int64([1]), "w": np.float32([[[0.1, 0.2, 0.4, 0.2, 0.1]]])}
    return _saved(path, nodes, ["batch", 2000], ["batch", 2000], weights)


def _blocks(path: Path, given: list[object]) -> Path:
    """A transform of each eight samples of a signal [batch, N], there and back."""
    nodes = [
        helper.make_node("Reshape", ["x", "rows"], ["cut"]),
        helper.make_node("MatMul", ["cut", "w"], ["turned"]),
        helper.make_node("Reshape", ["turned", "line"], ["y"]),
    ]
    weights = {
        "rows": np.int64([0, -1, 8]),
        "line": np.int64([0, -1]),
        "w": np.linalg.qr(RANDOM.normal(size=(8, 8)))[0].astype(np.float32),
    }
    return _saved(path, nodes, ["batch", "N"], given, weights)


def _quantized(path: Path, data: Array, **options: object) -> qglow.QuantizedModel:
    samples = [{"x": each} for each in data]
    model = qglow.load_model(path, shapes={"x": (1, *data.shape[1:])})
    return model.quantize(model.profile(samples), **options)  # type: ignore[arg-type]


def test_a_signal_is_not_taken_for_scores(tmp_path: Path) -> None:
    times = np.arange(2000, dtype=np.float32)
    waves = np.stack([np.sin(times / RANDOM.uniform(3, 30)) for _ in range(8)])
    for path in (_filter(tmp_path / "f.onnx"), _blocks(tmp_path / "g.onnx", ["batch", "M"])):
        quantized = _quantized(path, waves)
        verdict = quantized.verdict
        assert verdict is not None and verdict.word == "good" and verdict.agreement is None
        assert qglow.compare(quantized, [{"x": wave} for wave in waves]).pairings[0].agreement is None
        assert verdict.sqnr_db is not None and verdict.sqnr_db < 100.0
    stated = _quantized(_blocks(tmp_path / "h.onnx", ["batch", 2000]), waves)
    assert stated.verdict is not None and stated.verdict.agreement is not None
    assert qglow.compare(stated, [{"x": wave} for wave in waves]).pairings[0].agreement is not None


def _tagger(path: Path) -> Path:
    """Probabilities [batch, T, 12] of signals [batch, T, 16]."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"], axis=-1),
    ]
    weights = {
        "w": RANDOM.normal(size=(16, 32)).astype(np.float32),
        "v": RANDOM.normal(size=(32, 12)).astype(np.float32),
    }
    return _saved(path, nodes, ["batch", "T", 16], ["batch", "frames", 12], weights)


@pytest.mark.parametrize(
    ("calibration", "words"), [("minmax", {"good"}), ("percentile:51", {"broken", "suspicious"})]
)
def test_tags_are_compared_by_position(tmp_path: Path, calibration: str, words: set[str]) -> None:
    signals = RANDOM.normal(size=(8, 40, 16)).astype(np.float32)
    made = _quantized(_tagger(tmp_path / "t.onnx"), signals, calibration=calibration, repair=False)
    verdict = made.verdict
    assert verdict is not None and verdict.word in words
    [output] = verdict.outputs
    assert output.probabilities and output.agreement is not None and output.beyond_chance is not None
    assert output.beyond_chance < output.agreement < 1.0


def _integrator(path: Path) -> Path:
    """A sum of signals over calls, which they add up to little by little: frame, total -> mean, next."""
    nodes = [
        helper.make_node("MatMul", ["frame", "w"], ["step"]),
        helper.make_node("Add", ["total", "step"], ["next"]),
        helper.make_node("MatMul", ["next", "v"], ["level"]),
    ]
    weights = {
        "w": (RANDOM.normal(size=(16, 32)) * 0.01).astype(np.float32),
        "v": RANDOM.normal(size=(32, 8)).astype(np.float32),
    }
    floats = (("frame", [1, 16]), ("total", [1, 32]), ("next", [1, 32]), ("level", [1, 8]))
    infos = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in floats}
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(
        nodes, "g", [infos["frame"], infos["total"]], [infos["level"], infos["next"]], held
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def _frames(path: Path) -> Path:
    """Frames, with totals as single calls would have them."""
    frames = RANDOM.normal(size=(24, 16)).astype(np.float32)
    np.savez(path, frame=frames, total=RANDOM.normal(size=(24, 32)).astype(np.float32))
    return path


def test_states_that_are_named_make_a_stream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, data = _integrator(tmp_path / "m.onnx"), _frames(tmp_path / "d.npz")
    profile, out = tmp_path / "p.yaml", tmp_path / "out"
    assert main(["profile", str(model), "--data", str(data), "-o", str(profile)]) == 0
    words = ["quantize", "--no-repair", "--profile", str(profile), "-o", str(out)]
    assert main([*words, "--state", "total=next"]) == 0
    assert "as a stream of 64 calls" in capsys.readouterr().out
    verdict = qglow.load_quantized(out).verdict
    assert verdict is not None and verdict.stream is not None and verdict.sqnr_db is not None
    last = verdict.stream.last
    assert [output.name for output in last.outputs] == ["level"]
    assert last.sqnr_db is not None and last.sqnr_db < verdict.sqnr_db
    assert main(words) == 0
    plain = qglow.load_quantized(out).verdict
    assert plain is not None and plain.stream is None


def test_states_that_are_always_zero_are_told(tmp_path: Path) -> None:
    data = {
        "frame": RANDOM.normal(size=(24, 16)).astype(np.float32),
        "total": np.zeros((24, 32), np.float32),
    }
    model = qglow.load_model(_integrator(tmp_path / "m.onnx"))
    profile = model.profile(data)
    streamed = model.quantize(profile, states={"total": "next"}, repair=False).verdict
    assert streamed is not None and "only zeros for 'total': calibrate with states" in streamed.note
    assert streamed.stream is not None and streamed.word != "good"
    assert [output.name for output in streamed.outputs if output.agreement is not None] == ["level"]
    plain = model.quantize(profile, repair=False).verdict
    assert plain is not None and plain.note == "" and plain.word == "good"
    assert all(output.agreement is not None for output in plain.outputs)


@pytest.mark.parametrize(
    ("state", "message"),
    [("sum=next", "no input has this name"), ("total=level", "types have to be equal")],
)
def test_states_that_do_not_fit_are_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: str, message: str
) -> None:
    model, data = _integrator(tmp_path / "m.onnx"), _frames(tmp_path / "d.npz")
    profile, out = tmp_path / "p.yaml", tmp_path / "out"
    assert main(["profile", str(model), "--data", str(data), "-o", str(profile)]) == 0
    assert main(["quantize", "--profile", str(profile), "--state", state, "-o", str(out)]) == 2
    assert message in capsys.readouterr().err and not out.exists()
