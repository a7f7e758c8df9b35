"""The example, from the ONNX file to the benchmark, as a user would go."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import qglow
from qglow.core.files import sha256_hex
from qglow.report.metrics import rank_of
from tests.end_to_end.conftest import CALIBRATION, MODEL, TEST_DATA, Run
from tests.runtimes import NATIVE

# The smallest instruction set whose floats have the bits of the best one.
OTHER_ISA = next(isa.name for isa in NATIVE if isa.has_fma == NATIVE[-1].has_fma)
FILES = {
    "constants.npz", "float.txt", "int8.txt", "model.qdq.onnx", "model.qglow", "recipe.yaml",
    "quantization.json",
    "report.html", "report.json", "report.md",
}  # fmt: skip


def test_profile_is_the_same_bytes_for_every_batch_size_and_order_of_shards(
    run: Run, profile: Path, tmp_path: Path
) -> None:
    common = ("profile", MODEL, "--data", CALIBRATION)
    assert run(*common, "--batch-size", 7, "-o", tmp_path / "seven.yaml") == 0
    assert run(*common, "--select", ":80", "-o", tmp_path / "first.yaml") == 0
    assert run(*common, "--select", "80:", "--isa", OTHER_ISA, "-o", tmp_path / "second.yaml") == 0
    shards = (tmp_path / "second.yaml", tmp_path / "first.yaml")
    assert run("profile", "merge", *shards, "-o", tmp_path / "merged.yaml") == 0
    seven, merged = (qglow.load_profile(tmp_path / name) for name in ("seven.yaml", "merged.yaml"))
    expected = tmp_path / "expected.yaml"
    qglow.save_profile(qglow.load_profile(profile), expected)
    for found in (seven, merged):
        qglow.save_profile(found, tmp_path / "again.yaml")
        assert (tmp_path / "again.yaml").read_bytes() == expected.read_bytes()


def test_interpreter_profiles_the_same_values(run: Run, profile: Path, tmp_path: Path) -> None:
    path = tmp_path / "interpreted.yaml"
    common = ("profile", MODEL, "--data", CALIBRATION)
    assert run(*common, "--engine", "interpreter", "--samples", 20, "-o", path) == 0
    interpreted, compiled = qglow.load_profile(path), qglow.load_profile(profile)
    assert interpreted.samples == 20
    assert set(interpreted.values) == set(compiled.values)


def test_quantized_directory_is_complete_and_its_manifest_true(quantized: Path) -> None:
    manifest = json.loads((quantized / "manifest.json").read_text())
    # The batch of the model is free, so its profile is there; it names the model from where it lies.
    every = FILES | {"profile.yaml"}
    assert set(manifest["files"]) == every
    assert {path.name for path in quantized.iterdir()} == every | {"manifest.json"}
    for name, digest in manifest["files"].items():
        assert sha256_hex((quantized / name).read_bytes()) == digest
    assert (quantized / manifest["model"]["path"]).resolve() == MODEL.resolve()


def test_nothing_is_left_beside_the_directory(quantized: Path) -> None:
    assert [path.name for path in quantized.parent.iterdir()] == [quantized.name]


def test_quantizing_twice_gives_the_same_bytes(
    run: Run, profile: Path, quantized: Path, tmp_path: Path
) -> None:
    again = tmp_path / "again"
    assert run("quantize", MODEL, "--profile", profile, "--no-repair", "--data", TEST_DATA, "-o", again) == 0
    for name in FILES:
        assert (again / name).read_bytes() == (quantized / name).read_bytes(), name


def test_quantize_needs_nothing_but_the_profile(
    run: Run,
    profile: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("quantize", "--profile", profile) == 0
    assert (tmp_path / "digits.quantized" / "manifest.json").is_file()
    said = capsys.readouterr()
    assert "nodes in int8" in said.out and "int8 regions" in said.out and "folded" in said.out
    assert "input=1,1,8,8" in said.err


def test_accuracy_of_the_reports_is_near_that_of_float(quantized: Path) -> None:
    report = json.loads((quantized / "report.json").read_text())
    accuracy = report["comparison"]["accuracy"]
    lost = accuracy["onnxruntime float32"]["top1"] - accuracy["qglow int8"]["top1"]
    assert lost <= 0.01
    assert "onnxruntime QDQ" in (quantized / "report.md").read_text()


def test_exported_model_is_valid_onnx_with_the_original_names(quantized: Path) -> None:
    model = onnx.load(quantized / "model.qdq.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert [value.name for value in model.graph.input] == ["input"]
    assert [value.name for value in model.graph.output] == ["logits"]


def test_compare_accepts_the_directory_and_writes_reports(
    run: Run, quantized: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("compare", quantized, "--data", TEST_DATA, "--samples", 40, "--layers", "-o", tmp_path)
    assert run(*words, "--max-drop", 5, "--min-agreement", 90, "--min-sqnr", 20) == 0
    out = capsys.readouterr().out
    assert "Accuracy on 40 labelled samples" in out and "Layers over 40 samples" in out
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["comparison"]["samples"] == 40 and report["layers"]["samples"] == 40


def test_compare_accepts_model_and_profile(run: Run, profile: Path) -> None:
    assert run("compare", MODEL, "--profile", profile, "--data", TEST_DATA, "--samples", 10) == 0


@pytest.mark.parametrize(
    "limit", [("--min-sqnr", 90), ("--min-agreement", 100.5), ("--max-drop", -1)], ids=lambda x: x[0]
)
def test_compare_exits_with_1_when_a_limit_is_broken(
    run: Run, quantized: Path, limit: tuple[str, float], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("compare", quantized, "--data", TEST_DATA, "--samples", 10, *limit) == 1
    assert "qglow: error: qglow int8 against onnxruntime float32" in capsys.readouterr().err


def test_compare_measures_a_metric_of_the_users(
    run: Run,
    quantized: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = "def right(outputs, labels):\n    return (outputs['logits'].argmax(1) == labels).sum()\n"
    (tmp_path / "digits_metric.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    words = ("compare", quantized, "--data", TEST_DATA, "--samples", 40, "--metric", "digits_metric:right")
    assert run(*words, "--max-metric-drop", 2, "--min-metric", 36) == 0
    out = capsys.readouterr().out
    assert "digits_metric:right" in out and "95 % interval" in out
    assert run(*words, "--min-metric", 41) == 1
    assert "at least 41 must be" in capsys.readouterr().err
    assert run("compare", quantized, "--data", TEST_DATA, "--samples", 5, "--min-metric", 1) == 2
    assert run("compare", quantized, "--data", TEST_DATA, "--samples", 5, "--metric", "nothing") == 2


@pytest.mark.parametrize("target", ["model.qglow", "."])
def test_run_answers_as_the_api_does(
    run: Run, quantized: Path, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "outputs.npz"
    words = ("run", quantized / target, "--data", TEST_DATA, "--samples", 5, "--top", 2, "-o", output)
    assert run(*words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [f"test.npz[{index}]" for index in range(5)]
    with np.load(output) as found, np.load(TEST_DATA) as data:
        executable = qglow.load_quantized(quantized).compile()
        for row in range(5):
            expected = executable({"input": data["input"][row : row + 1]})["logits"]
            assert np.array_equal(found["logits"][row : row + 1], expected)
        ranks = rank_of(found["logits"], data["label"][:5].astype(np.int64))
    assert (ranks < 2).all()


def test_trusted_code_gives_the_same_bits(quantized: Path) -> None:
    with np.load(TEST_DATA) as data:
        inputs = {"input": data["input"][:1]}
    results = [
        qglow.load(quantized / "model.qglow", trust=trust)(inputs)["logits"] for trust in (False, True)
    ]
    assert np.array_equal(*results)


def test_compiled_int8_model_has_the_bits_of_the_interpreter_at_every_batch(profile: Path) -> None:
    with np.load(TEST_DATA) as data:
        images = data["input"][:4]
    ranges = qglow.load_profile(profile)
    four = qglow.load_model(MODEL, {"input": (4, 1, 8, 8)}).quantize(ranges, repair=False)
    one = qglow.load_model(MODEL).quantize(ranges, repair=False).compile()
    together = four.compile()({"input": images})["logits"]
    assert np.array_equal(together, four.interpret({"input": images})["logits"])
    alone = [one({"input": images[row : row + 1]})["logits"] for row in range(4)]
    assert np.array_equal(together, np.concatenate(alone))


def test_bench_measures_four_programs(
    run: Run, quantized: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    timings = tmp_path / "timings.json"
    assert run("bench", quantized, "--alternations", 20, "-o", timings) == 0
    measured = json.loads(timings.read_text())["latencies"]
    assert list(measured) == ["onnxruntime float32", "onnxruntime int8", "qglow float32", "qglow int8"]
    assert "relative to qglow int8" in capsys.readouterr().out


def test_compiled_float_model_runs(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "float.qglow"
    assert run("compile", MODEL, "-o", path) == 0
    with np.load(TEST_DATA) as data:
        inputs = {"input": data["input"][:1]}
    expected = qglow.load_model(MODEL).interpret(inputs)["logits"]
    assert np.allclose(qglow.load(path)(inputs)["logits"], expected, rtol=1e-4, atol=1e-4)


def test_dump_ir_prints_the_program_and_writes_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("compile", MODEL, "--dump-ir") == 0
    assert capsys.readouterr().out.startswith("function digits\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--stage", "graph"), "graph digits ("),
        (("--stage", "graph", "--passes", ""), "BatchNormalization"),
        (("--stage", "graph", "--dot"), 'digraph "digits" {'),
        (("--stage", "instructions"), "function digits"),
        (("--stage", "llvm", "--isa", "amx"), "define"),
        (("--stage", "asm", "--isa", "avx2"), ".text"),
    ],
)
def test_inspect_shows_every_stage_of_a_model(
    run: Run, words: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("inspect", MODEL, *words) == 0
    assert expected in capsys.readouterr().out


def test_inspect_shows_int8_of_a_directory_and_of_model_with_profile(
    run: Run, quantized: Path, profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("inspect", quantized, "--stage", "quantized") == 0
    of_directory = capsys.readouterr().out
    assert run("inspect", MODEL, "--profile", profile, "--stage", "quantized") == 0
    assert capsys.readouterr().out == of_directory
    assert "i8[S:" in of_directory
    assert of_directory.rstrip("\n") == (quantized / "int8.txt").read_text().rstrip("\n")
