"""`qglow check` on the example: what CI sees."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from qglow.cli.main import main
from tests.emulated import needs
from tests.zoo import REPOSITORY

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example with its baseline, in a place of its own."""
    for name in ("digits.onnx", "calib.npz", "test.npz", "accuracy.yaml"):
        shutil.copy(REPOSITORY / "calib_data" / name, tmp_path / name)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    return tmp_path


def check(folder: Path, *options: str) -> int:
    return main(["check", "--baseline", str(folder / "accuracy.yaml"), "--entry", "digits", *options])


def with_baseline(folder: Path, old: str, new: str) -> None:
    path = folder / "accuracy.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.slow
def test_the_example_keeps_its_accuracy_and_ci_is_told(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = folder / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert check(folder, "--junit", str(folder / "j.xml"), "--markdown", str(folder / "t.md")) == 0
    assert "1 Pass." in capsys.readouterr().out
    assert 'failures="0"' in (folder / "j.xml").read_text()
    assert summary.read_text() == "before\n" + (folder / "t.md").read_text()


@pytest.mark.slow
def test_an_entry_may_be_held_to_its_accuracy_on_another_processor(folder: Path, capsys: Capture) -> None:
    needs("cortex-m4")
    with_baseline(folder, "metric: top1", "metric: top1\n    samples: 40")
    assert check(folder, "--update") == 0
    with_baseline(folder, "samples: 40", "samples: 40\n    target: cortex-m4")
    assert check(folder) == 0
    assert "1 Pass." in capsys.readouterr().out
    with_baseline(folder, "target: cortex-m4", "target: cortex-m5")
    assert check(folder) == 2
    assert "digits: no target is called 'cortex-m5'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_regression_exits_with_5_and_update_accepts_it(folder: Path, capsys: Capture) -> None:
    with_baseline(folder, "value: 99.1625", "value: 99.9")
    assert check(folder) == 5
    out, err = capsys.readouterr()
    assert "Regression" in out
    errors = [line for line in err.splitlines() if line.startswith("qglow: error:")]
    assert len(errors) == 1 and "digits: top1 99.9 -> 99.1625 (tolerance 0.3; " in errors[0]
    assert check(folder, "--update") == 0
    assert (folder / "accuracy.yaml").read_text() == (REPOSITORY / "calib_data/accuracy.yaml").read_text()


@pytest.mark.slow
def test_an_expected_failure_passes(folder: Path, capsys: Capture) -> None:
    with_baseline(folder, "value: 99.1625", "value: 99.9")
    with_baseline(folder, "    tolerance: 0.3", "    expected_failure: known\n    tolerance: 0.3")
    assert check(folder) == 0
    assert "1 Expected-failure." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        ("data: test.npz", "data: absent.npz", 4, "digits: "),
        ("model: digits.onnx", "model: absent.onnx", 4, "absent.onnx"),
        ("metric: top1", "metric: top_1", 4, "did you mean 'top1'"),
    ],
)
def test_a_wrong_entry_is_an_error_and_no_verdict(
    folder: Path, capsys: Capture, old: str, new: str, code: int, message: str
) -> None:
    with_baseline(folder, old, new)
    assert check(folder) == code
    out, err = capsys.readouterr()
    assert message in err and not out


def test_an_unknown_entry_names_the_nearest(folder: Path, capsys: Capture) -> None:
    path = str(folder / "accuracy.yaml")
    assert main(["check", "--baseline", path, "--entry", "digit"]) == 2
    assert "did you mean 'digits'" in capsys.readouterr().err


def _free_filter(path: Path, *, sized: bool) -> None:
    """A filter of signals [batch, N]; sized: of one signal, and of as many elements as an input says."""
    shape = [1, 8] if sized else ["batch", "N"]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    held = [numpy_helper.from_array(np.eye(8, dtype=np.float32), "w")]
    if sized:
        inputs.append(helper.make_tensor_value_info("ends", TensorProto.INT64, [1]))
        held.append(numpy_helper.from_array(np.int64([0]), "zero"))
        nodes = [
            helper.make_node("Slice", ["x", "zero", "ends"], ["cut"]),
            helper.make_node("MatMul", ["cut", "w"], ["y"]),
        ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", inputs, [output], held)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def _signals(folder: Path, **others: object) -> None:
    random = np.random.default_rng(1)
    for name in ("c.npz", "t.npz"):
        signals = random.normal(size=(12, 8)).astype(np.float32)
        np.savez(folder / name, x=signals, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["{model: m.onnx, calibration: c.npz, data: t.npz, metric: sqnr}", "lines"])
def test_free_dimensions_are_those_of_the_data(tmp_path: Path, capsys: Capture, form: str) -> None:
    _free_filter(tmp_path / "m.onnx", sized=False)
    _signals(tmp_path)
    lines = "\n    model: m.onnx\n    calibration: c.npz\n    data: t.npz\n    metric: sqnr\n"
    path = tmp_path / "b.yaml"
    path.write_text(f"models:\n  m: {lines if form == 'lines' else form}\n")
    assert main(["check", "--baseline", str(path), "--update"]) == 0
    assert main(["check", "--baseline", str(path), "--require-baseline"]) == 0
    assert "1 Pass." in capsys.readouterr().out


def test_values_that_decide_shapes_are_named(tmp_path: Path, capsys: Capture) -> None:
    _free_filter(tmp_path / "m.onnx", sized=True)
    path = tmp_path / "b.yaml"
    path.write_text("models: {m: {model: m.onnx, calibration: c.npz, data: t.npz, metric: sqnr}}\n")
    _signals(tmp_path)
    assert main(["check", "--baseline", str(path)]) == 2
    error = capsys.readouterr().err
    assert "the values of 'ends' decide shapes" in error and "`quantized`" in error and "--value" not in error
    _signals(tmp_path, ends=np.arange(1, 13)[:, None] // 4)
    assert main(["check", "--baseline", str(path)]) == 4
    assert "m: sample 3 has another value of input 'ends' than sample 0" in capsys.readouterr().err
    _signals(tmp_path, ends=np.full((12, 1), 8))
    assert main(["check", "--baseline", str(path)]) == 0
