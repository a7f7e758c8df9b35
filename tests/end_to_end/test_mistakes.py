"""Users' mistakes: one or two lines that say what is wrong, the documented exit code, no traceback."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.end_to_end.conftest import CALIBRATION, MODEL, TEST_DATA, Run

Capture = pytest.CaptureFixture[str]


def assert_fails(run: Run, capsys: Capture, words: tuple[object, ...], code: int, *said: str) -> None:
    capsys.readouterr()
    found = run(*words)
    out, err = capsys.readouterr()
    message = err[err.index("qglow: error: ") :]
    assert found == code, err
    for part in said:
        assert part in message
    assert "Traceback" not in out + err


def changed_weight(source: Path, target: Path) -> Path:
    """A copy of a model in which one weight is another."""
    model = onnx.load(source)
    weights = model.graph.initializer[0]
    array = numpy_helper.to_array(weights).copy()
    array.reshape(-1)[0] += 0.5
    weights.CopyFrom(numpy_helper.from_array(array, weights.name))
    onnx.save(model, target)
    return target


def other_model(target: Path) -> Path:
    """A model that has nothing to do with the example."""
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["y"])],
        "other",
        [value("x", onnx.TensorProto.FLOAT, [1, 4])],
        [value("y", onnx.TensorProto.FLOAT, [1, 4])],
    )
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), target)
    return target


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("profile", MODEL, "--dta", CALIBRATION), "--data"),
        (("profle", MODEL), "'profile'"),
        (("profile", MODEL), "'--data'"),
        (("profile", MODEL, "--data", CALIBRATION, "--samples", "many"), "'--samples'"),
        (("profile", MODEL, "--data", CALIBRATION, "--samples", 0), "at least 1"),
        (("profile", MODEL, "--data", CALIBRATION, "--batch-size", 0), "at least 1"),
        (("bench", MODEL, "--alternations", 0), "one alternation"),
        (("profile", MODEL, "--data", CALIBRATION, "--select", "a:b"), "START:STOP:STEP"),
        (("profile", MODEL, "--data", CALIBRATION, "--engine", "fast"), "interpreter"),
        (("profile", MODEL, "--data", CALIBRATION, "--shape", "input"), "INPUT="),
        (("profile", MODEL, "--data", CALIBRATION, "--shape", "inptu=1,1,8,8"), "did you mean 'input'"),
        (("profile", MODEL, "--data", CALIBRATION, "--shape", "input=1,3,8,8"), "[N, 1, 8, 8]"),
        (("compile", MODEL, "--isa", "avx1024"), "avx512vnni"),
        (("bench", MODEL, "--threads", 0), "from 1 to"),
        (("bench", MODEL, "--layers"), "inspect --stage kernels --measure"),
        (("run", MODEL, "--data", TEST_DATA, "--threads", "all"), "'--threads'"),
        (("profile", MODEL, "--data", CALIBRATION, "--threads", -2), "from 1 to"),
        (("inspect", MODEL, "--stage", "object"), "asm"),
        (("inspect", MODEL, "--stage", "asm", "--measure"), "--stage kernels"),
        (("inspect", MODEL, "--passes", "fold-constant"), "did you mean 'fold-constants'"),
        (("inspect", MODEL, "--stage", "quantized"), "--profile"),
        (("compare", MODEL, "--data", TEST_DATA), "--profile"),
    ],
    ids=lambda x: " ".join(map(str, x[2:])) if isinstance(x, tuple) else "",
)
def test_wrong_usage_exits_with_2(run: Run, capsys: Capture, words: tuple[object, ...], said: str) -> None:
    assert_fails(run, capsys, words, 2, said)


def test_a_wrong_number_of_threads_in_the_environment_exits_with_2(
    run: Run, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QGLOW_THREADS", "both")
    assert_fails(run, capsys, ("run", MODEL, "--data", TEST_DATA), 2, "QGLOW_THREADS", "both")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--schema", "symetric"), "did you mean 'symmetric'"),
        (("--calibration", "percentile:3"), "percentile:P"),
        (("--keep-float", "block9"), "block9"),
        (("--keep-float", "op:LSTM"), "has Add, Conv, Gemm, GlobalAveragePool, Reshape"),
        (("--keep-float", "re:("), "regular expression"),
    ],
    ids=lambda x: x[0] if isinstance(x, tuple) else "",
)
def test_wrong_choice_of_quantization_exits_with_2(
    run: Run, capsys: Capture, profile: Path, options: tuple[str, ...], said: str
) -> None:
    assert_fails(run, capsys, ("quantize", "--profile", profile, *options), 2, said)


def test_nodes_that_must_not_stay_float_exit_with_3(run: Run, capsys: Capture, profile: Path) -> None:
    words = ("quantize", "--profile", profile, "--keep-float", "op:Gemm", "--assert-all-quantized")
    assert_fails(run, capsys, words, 3, "--assert-all-quantized", "Gemm")


def test_unsupported_operators_exit_with_3_and_are_listed(run: Run, capsys: Capture, tmp_path: Path) -> None:
    path = other_model(tmp_path / "other.onnx")
    model = onnx.load(path)
    model.graph.node[0].op_type = "RandomNormalLike"
    onnx.save(model, path)
    assert_fails(run, capsys, ("compile", path), 3, "RandomNormalLike", "not supported", "qglow ops")


@pytest.mark.parametrize("command", ["inspect", "bench", "compile"])
def test_a_program_that_is_missing_is_called_missing(
    run: Run, capsys: Capture, tmp_path: Path, command: str
) -> None:
    assert_fails(run, capsys, (command, tmp_path / "none.qglow"), 4, "none.qglow: no such file")


@pytest.mark.parametrize("size", [0, 100, 40_000])
def test_corrupt_model_exits_with_4(run: Run, capsys: Capture, tmp_path: Path, size: int) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes(MODEL.read_bytes()[:size])
    assert_fails(run, capsys, ("profile", path, "--data", CALIBRATION), 4, str(path))


def test_missing_files_exit_with_4(run: Run, capsys: Capture, profile: Path, tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    for words in (
        ("profile", absent, "--data", CALIBRATION),
        ("profile", MODEL, "--data", absent),
        ("profile", MODEL, "--data", CALIBRATION, "--recipe", absent),
        ("quantize", "--profile", absent),
        ("run", tmp_path / "absent.qglow", "--data", TEST_DATA),
        ("compare", tmp_path, "--data", TEST_DATA),
    ):
        assert_fails(run, capsys, words, 4)


def test_profile_that_was_moved_away_from_its_model_says_so(
    run: Run, capsys: Capture, profile: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "deep" / "profile.yaml"
    moved.parent.mkdir()
    moved.write_text(profile.read_text())
    assert_fails(run, capsys, ("quantize", "--profile", moved), 4, "digits.onnx", "missing")


def test_stale_profile_exits_with_4(run: Run, capsys: Capture, profile: Path, tmp_path: Path) -> None:
    path = changed_weight(MODEL, tmp_path / "changed.onnx")
    words = ("quantize", path, "--profile", profile, "-o", tmp_path / "out")
    assert_fails(run, capsys, words, 4, "stale", "; profile the model again")
    assert not (tmp_path / "out").exists()


def test_profile_of_another_model_exits_with_4(
    run: Run, capsys: Capture, profile: Path, tmp_path: Path
) -> None:
    path = other_model(tmp_path / "other.onnx")
    assert_fails(run, capsys, ("quantize", path, "--profile", profile), 4, "profile")


def test_profile_with_other_shapes_exits_with_4_and_renamed_model_does_not(
    run: Run, profile: Path, tmp_path: Path
) -> None:
    model = onnx.load(MODEL)
    for node in model.graph.node:
        node.name = f"renamed_{node.name}"
    onnx.save(model, tmp_path / "renamed.onnx")
    words = ("quantize", tmp_path / "renamed.onnx", "--profile", profile, "-o", tmp_path / "out")
    assert run(*words) == 0


def test_profiles_of_two_models_are_not_merged(
    run: Run, capsys: Capture, profile: Path, tmp_path: Path
) -> None:
    path = changed_weight(MODEL, tmp_path / "changed.onnx")
    assert run("profile", path, "--data", CALIBRATION, "--samples", 3, "-o", tmp_path / "p.yaml") == 0
    words = ("profile", "merge", profile, tmp_path / "p.yaml", "-o", tmp_path / "m.yaml")
    assert_fails(run, capsys, words, 4, "merged")


def test_unknown_recipe_key_exits_with_4_and_names_the_nearest(
    run: Run, capsys: Capture, tmp_path: Path
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("preprocessing: {meen: [0.5]}\n")
    words = ("profile", MODEL, "--data", CALIBRATION, "--recipe", recipe)
    assert_fails(run, capsys, words, 4, "preprocessing.meen", "preprocessing.mean")


@pytest.mark.parametrize(("value", "said"), [(np.nan, "NaN"), (np.inf, "infinity")], ids=["NaN", "infinity"])
def test_bad_numbers_in_data_exit_with_4_and_name_the_sample(
    run: Run, capsys: Capture, tmp_path: Path, value: float, said: str
) -> None:
    images = np.zeros((3, 1, 8, 8), np.float32)
    images[2, 0, 4, 4] = value
    np.save(tmp_path / "bad.npy", images)
    words = ("profile", MODEL, "--data", tmp_path / "bad.npy", "-o", tmp_path / "p.yaml")
    assert_fails(run, capsys, words, 4, said, "bad.npy[2]")
    assert not (tmp_path / "p.yaml").exists()


def test_data_of_another_shape_exits_with_4(run: Run, capsys: Capture, tmp_path: Path) -> None:
    np.save(tmp_path / "wide.npy", np.zeros((2, 1, 8, 9), np.float32))
    words = ("profile", MODEL, "--data", tmp_path / "wide.npy")
    assert_fails(run, capsys, words, 4, "[1, 8, 9]", "[1, 8, 8]")


@pytest.mark.parametrize("name", ["int8.txt", "constants.npz", "manifest.json"])
def test_damaged_directory_exits_with_4(
    run: Run, capsys: Capture, quantized: Path, tmp_path: Path, name: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(quantized, copy)
    (copy / name).write_bytes((copy / name).read_bytes()[:-40])
    assert_fails(run, capsys, ("compare", copy, "--data", TEST_DATA), 4, name)


def test_damaged_program_exits_with_4(run: Run, capsys: Capture, quantized: Path, tmp_path: Path) -> None:
    data = bytearray((quantized / "model.qglow").read_bytes())
    # In the text of the program, which is read for certain; machine code only is where it is trusted.
    data[data.index(b"program.txt") + 1000] ^= 0xFF
    (tmp_path / "bad.qglow").write_bytes(data)
    words = ("run", tmp_path / "bad.qglow", "--data", TEST_DATA)
    assert_fails(run, capsys, words, 4, "bad.qglow")


def test_float_model_that_changed_after_quantization_is_refused(
    run: Run, capsys: Capture, tmp_path: Path
) -> None:
    model = tmp_path / "model.onnx"
    shutil.copy(MODEL, model)
    profile = tmp_path / "p.yaml"
    assert run("profile", model, "--data", CALIBRATION, "--samples", 10, "-o", profile) == 0
    assert run("quantize", "--profile", profile, "-o", tmp_path / "q") == 0
    changed_weight(MODEL, model)
    assert_fails(run, capsys, ("compare", tmp_path / "q", "--data", TEST_DATA), 4, "changed")
    assert_fails(run, capsys, ("quantize", "--profile", profile), 4, "stale")


def test_output_that_cannot_be_written_exits_with_4(run: Run, capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    words = ("profile", MODEL, "--data", CALIBRATION, "--samples", 2, "-o", tmp_path / "file" / "p.yaml")
    assert_fails(run, capsys, words, 4, "cannot write")
