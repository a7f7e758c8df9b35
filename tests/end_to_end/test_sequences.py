"""Labels [N, T] and metrics of sequences, by command, on a tiny transformer that sorts digits."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

import qglow
from tests.end_to_end.conftest import Run
from tests.zoo import REPOSITORY, zoo_path

MODEL = REPOSITORY / "tests" / "models" / "sorter.onnx"
POSITIONS = 10


@pytest.fixture(scope="module")
def folder(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data with and without labels, the profile and the quantized model."""
    folder = tmp_path_factory.mktemp("sorter")
    with np.load(MODEL.with_suffix(".npz")) as arrays:
        calibration, test, label = (np.asarray(arrays[name]) for name in ("calibration", "test", "label"))
    wrong = label.copy()
    wrong[:, 0] = (wrong[:, 0] + 1) % 10  # one position in ten that no sorter gets right
    np.savez(folder / "calib.npz", input=calibration)
    np.savez(folder / "plain.npz", input=test)
    np.savez(folder / "wrong.npz", input=test, label=wrong)
    np.save(folder / "masked.npy", np.where(np.arange(POSITIONS) == 0, -100, wrong))
    shutil.copy(MODEL, folder)
    common = (MODEL, "--data", folder / "calib.npz", "-o", folder / "profile.yaml")
    assert run("profile", *common) == 0
    common = (MODEL, "--profile", folder / "profile.yaml", "-o", folder / "int8")
    assert run("quantize", *common, "--no-repair") == 0
    return folder


def test_labels_of_positions_are_measured_and_masked(
    run: Run, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compare = ("compare", folder / "int8", "--samples", 50, "--data")
    assert run(*compare, folder / "wrong.npz", "--metric", "top1", "--min-metric", 89, "--max-drop", 1) == 0
    out = capsys.readouterr().out
    assert "Accuracy on 500 labelled positions" in out and "Agreement of positions" in out
    assert re.search(r"onnxruntime float32 +90\.00 %", out)
    masked = (folder / "plain.npz", "--labels", folder / "masked.npy")
    assert run(*compare, *masked, "--min-agreement", 99) == 0
    out = capsys.readouterr().out
    assert "Accuracy on 450 labelled positions" in out and re.search(r"float32 +100\.00 %", out)


def test_metrics_of_sequences_have_limits_by_command(
    run: Run, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compare = ("compare", folder / "int8", "--samples", 20, "--data", folder / "plain.npz", "--metric")
    assert run(*compare, "kl_float", "--max-metric", 0.01) == 0
    out = capsys.readouterr().out
    assert "kl_float by position" in out and "kl_float along the positions" in out
    assert run(*compare, "agreement", "--min-metric", 99) == 0
    labels = ("--labels", folder / "masked.npy")
    assert run(*compare, "perplexity", *labels, "--max-metric", 1.01, "--max-metric-drop", 0.01) == 0
    assert "Metric, lower is better" in capsys.readouterr().out
    assert run(*compare, "perplexity", *labels, "--max-metric", 0.5) == 1
    assert run(*compare, "cross_entropy", *labels, "--min-metric", 0) == 2
    assert "cross_entropy is better the lower it is: limit --max-metric" in capsys.readouterr().err


def test_a_padding_class_is_named_by_the_recipe(run: Run, folder: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("data: {ignore_label: 9}\n")
    with np.load(folder / "wrong.npz") as arrays:
        counted = int((arrays["label"][:20] != 9).sum())
    report = tmp_path / "report"
    data = ("--data", folder / "wrong.npz", "--samples", 20, "--recipe", recipe)
    assert run("compare", folder / "int8", *data, "-o", report) == 0
    assert f"{counted} labelled positions" in (report / "report.md").read_text()


def test_a_baseline_holds_metrics_of_sequences(
    run: Run, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = {"quantized": str(folder / "int8"), "data": str(folder / "plain.npz"), "samples": 20}
    labels = {"labels": str(folder / "masked.npy")}
    kinds = {name: {**entry, **labels, "metric": name} for name in ("top1", "perplexity", "cross_entropy")}
    kinds |= {name: {**entry, "metric": name} for name in ("agreement", "kl_float")}
    baseline = tmp_path / "accuracy.yaml"
    baseline.write_text(yaml.safe_dump({"models": kinds}))
    assert run("check", "--baseline", baseline, "--update") == 0
    figures = {n: m["measured"] for n, m in yaml.safe_load(baseline.read_text())["models"].items()}
    assert figures["top1"]["value"] == figures["agreement"]["value"] == 100.0
    assert 1.0 <= figures["perplexity"]["reference"] <= figures["perplexity"]["value"] < 1.01
    assert run("check", "--baseline", baseline) == 0
    document = yaml.safe_load(baseline.read_text())
    document["models"]["perplexity"]["measured"]["value"] = 0.9  # a rise since then is a regression
    document["models"]["top1"]["measured"]["value"] = 99.0
    baseline.write_text(yaml.safe_dump(document))
    capsys.readouterr()
    assert run("check", "--baseline", baseline) == 5
    out = capsys.readouterr()
    assert "perplexity 0.9 -> 1.0" in out.err and "top1 99 ->" not in out.err
    assert "1 Regression" in out.out and "1 Improvement" in out.out


@pytest.mark.slow
def test_tune_takes_metrics_that_are_better_the_lower(run: Run, folder: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "harsh.yaml"
    recipe.write_text("calibration: percentile:90\nper_tensor: true\n")
    command = (
        "tune", MODEL, "--profile", folder / "profile.yaml", "--recipe", recipe, "--samples", 20,
        "--data", folder / "plain.npz", "--labels", folder / "masked.npy", "--metric", "cross_entropy",
        "--calibration-data", folder / "calib.npz", "--calibration-samples", 4, "-o", tmp_path / "tuned.yaml",
    )  # fmt: skip
    assert run(*command, "--min-metric", 1) == 2
    assert run(*command, "--max-metric", 0.002) == 0
    state = json.loads((tmp_path / "tuned.yaml.state.json").read_text())
    measured = [state["figures"][key]["accuracy"] for key in sorted(state["figures"], key=int)]
    assert measured[0] > 0.002 and min(measured) <= 0.002
    assert all(figures["lower_is_better"] for figures in state["figures"].values())
    assert "metric of at most 0.002" in (tmp_path / "tuned.yaml").read_text()


@pytest.mark.slow
def test_a_language_model_is_measured_without_labels(tmp_path: Path) -> None:
    with np.load(zoo_path("data/tinystories_tok512.npz")) as arrays:
        tokens = arrays["tokens"].astype(np.int64)
    model = qglow.load_model(zoo_path("models/llama_stories260k.onnx"), {"tokens": (1, 128)})
    profile = model.profile({"tokens": tokens[:8, :-1]})
    quantized = model.quantize(profile, calibration="percentile:99.99", repair=False)
    test = {"tokens": tokens[64:72, :-1]}
    found = qglow.compare(quantized, test, metric="perplexity", threads=1)
    assert found.metric is not None and 3.5 < found.metric.values["onnxruntime float32"] < 5.0
    pairing = found.pairing("qglow int8", "onnxruntime float32")
    assert pairing.agreement is not None and pairing.agreement.samples == 8 * 128
    assert 0.8 < pairing.agreement.top1 < 1.0
    labelled = qglow.compare(
        quantized, {**test, "label": tokens[64:72, 1:]}, metric="cross_entropy", threads=1
    )
    assert labelled.accuracy["onnxruntime float32"].samples == 8 * 128


@pytest.mark.slow
def test_plates_are_read_from_labels_of_the_data() -> None:
    with np.load(zoo_path("data/lpr_ccpd.npz")) as arrays:
        pixels, plates, chars = (arrays[name] for name in ("x", "plates", "chars"))
    images = ((pixels.transpose(0, 3, 1, 2).astype(np.float32) - 127.5) / 128).astype(np.float32)
    places = {str(char): place for place, char in enumerate(chars)}
    labels = np.full((len(plates), 8), -1)
    for row, plate in enumerate(plates):
        labels[row, : len(plate)] = [places[char] for char in str(plate)]
    model = qglow.load_model(zoo_path("models/lprnet.onnx"))
    quantized = model.quantize(
        model.profile({"input": images[300:320]}), calibration="percentile:99.99", repair=False
    )
    test = {"input": images[:60], "label": labels[:60]}
    metric = "exact_match:ctc_last_classes_first"
    found = qglow.compare(quantized, test, metric=metric, threads=1)
    assert found.metric is not None and found.metric.values["onnxruntime float32"] > 80.0
    against = qglow.compare(quantized, test, metric="edit_accuracy_float:ctc_last_classes_first", threads=1)
    assert against.metric is not None and against.metric.values["qglow int8"] > 80.0
