"""Models whose first dimension counts steps or tokens: a run of them is one sample, not as many as it has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import qglow
from qglow.core.batch import may_be_batch
from qglow.core.errors import DataError, UsageError
from qglow.core.types import Array, Dimension
from qglow.report.evaluation import run_over_data
from tests.unit.importer.tiny import save, session, tiny_model
from tests.zoo import wild_path

node = helper.make_node
WIDTH, HIDDEN, STEPS, RUNS = 6, 8, 5, 10


def classifier(folder: Path, shape: tuple[int | str, int | str]) -> Path:
    """Scores of sequences [steps, batch, 6] by the last states of an LSTM, as PyTorch has it by default."""
    random = np.random.default_rng(3)
    constants = {
        "w": (random.normal(size=(1, 4 * HIDDEN, WIDTH)) * 0.4).astype(np.float32),
        "r": (random.normal(size=(1, 4 * HIDDEN, HIDDEN)) * 0.4).astype(np.float32),
        "v": random.normal(size=(HIDDEN, 3)).astype(np.float32),
        "first": np.array([0]),
    }
    nodes = [
        node("LSTM", ["x", "w", "r"], ["", "last", ""], hidden_size=HIDDEN),
        node("Squeeze", ["last", "first"], ["rows"]),
        node("MatMul", ["rows", "v"], ["y"]),
    ]
    return save(tiny_model(nodes, {"x": (*shape, WIDTH)}, ["y"], constants, opset=17), folder)


def runs(lengths: list[int]) -> list[Array]:
    random = np.random.default_rng(4)
    return [random.normal(size=(length, 1, WIDTH)).astype(np.float32) for length in lengths]


def files(folder: Path, arrays: list[Array]) -> Path:
    folder.mkdir()
    for number, array in enumerate(arrays):
        np.savez(folder / f"{number:02}.npz", x=array)
    return folder


@pytest.mark.parametrize("shape", [("steps", "batch"), (STEPS, "batch"), ("steps", 1)])
def test_a_run_of_steps_is_one_sample(tmp_path: Path, shape: tuple[int | str, int | str]) -> None:
    model, arrays = qglow.load_model(classifier(tmp_path, shape)), runs([STEPS] * RUNS)
    of_files = model.profile(files(tmp_path / "runs", arrays))
    stacked = model.profile({"x": np.stack(arrays)})
    assert of_files.samples == stacked.samples == RUNS
    assert of_files.data.hex == stacked.data.hex
    assert of_files.shapes == {"x": (STEPS, 1, WIDTH)}
    assert all(sample.inputs["x"].shape == (STEPS, 1, WIDTH) for sample in of_files.kept)
    quantized = model.quantize(of_files)
    assert quantized.verdict is not None and quantized.verdict.samples == RUNS
    assert qglow.compare(quantized, {"x": np.stack(arrays)}).samples == RUNS
    wanted = [session(tmp_path / "tiny.onnx").run(None, {"x": x})[0] for x in arrays]
    found = [quantized.compile()({"x": x})["y"] for x in arrays]
    assert np.abs(np.concatenate(found) - np.concatenate(wanted)).max() < 0.05


def test_states_of_later_steps_are_seen(tmp_path: Path) -> None:
    """Single steps, which these runs were profiled as, have states of two thirds of that range."""
    model = qglow.load_model(classifier(tmp_path, ("steps", "batch")))
    ranges = {}
    for steps in (1, 12):
        profile = model.profile(files(tmp_path / f"{steps}", runs([steps] * 24)))
        (ranges[steps],) = (
            v.statistics.high for v in profile.values.values() if v.name == "last__forth_states"
        )
    assert ranges[12] > 1.5 * ranges[1]


def test_runs_may_differ_in_their_steps(tmp_path: Path) -> None:
    model, arrays = qglow.load_model(classifier(tmp_path, ("steps", "batch"))), runs([3, 5, 9, 5, 12, 5])
    data = files(tmp_path / "runs", arrays)
    profile = model.profile(data)
    assert profile.samples == len(arrays) and profile.shapes == {"x": (5, 1, WIDTH)}
    given = session(tmp_path / "tiny.onnx")
    for (_, found), x in zip(run_over_data(model.compile(), data), arrays, strict=True):
        wanted = given.run(None, {"x": x})[0]
        np.testing.assert_allclose(found["y"].reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-5)


def test_steps_are_not_bound_to_one_in_silence(tmp_path: Path) -> None:
    model = qglow.load_model(classifier(tmp_path, ("steps", 1)))
    with pytest.raises(
        UsageError, match=r"'x' has shape \[steps, 1, 6\]; bind its dimensions, as in `shapes=x=128,1,6`"
    ):
        _ = model.graph
    x = runs([7])[0]
    wanted = session(tmp_path / "tiny.onnx").run(None, {"x": x})[0]
    np.testing.assert_allclose(model.compile()({"x": x})["y"], wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(DataError, match=r"the model takes \[\?, 1, 6\]"):
        model.profile({"x": np.zeros((4, 7, 2, WIDTH), np.float32)})


def test_a_batch_of_steps_is_refused(tmp_path: Path) -> None:
    model = qglow.load_model(classifier(tmp_path, ("steps", "batch"))).at({"x": (STEPS, 1, WIDTH)})
    with pytest.raises(UsageError, match="'steps', the first dimension of 'x', counts no samples"):
        model.with_batch(2)


@pytest.mark.parametrize(
    ("dimensions", "wanted"),
    [
        (["batch", "sequence", 8], True),
        (["N", "T", 8], True),
        ([None, 3, "height", "width"], True),
        (["unk__12", 224, 224, 3], True),
        ([1, "batch"], False),
        ([1, 3, 8, 8], True),
        ([4, 3, 8, 8], False),
        (["timestep_batch", 4], True),
        ([None, "batch", 4], False),
        (["n", "batch_size", 4], False),
        (["T", "N", 4], False),
        (["S", "B", 4], False),
        (["B", "N", 3], True),
        (["M", 40], True),
        (["samples"], False),
        (["num_samples", 40], True),
        (["batch"], True),
        ([None], True),
        (["T", 40], False),
        (["unk__3", "N", 3], True),
        (["length", 45], False),
        (["sequence"], False),
        (["height", "width", 3], False),
        (["frames_dynamic_axes_1", 40], True),
        (["input_dim_0", 40], True),
        ([], False),
    ],
)
def test_names_of_dimensions_tell_what_they_count(dimensions: list[Dimension], wanted: bool) -> None:
    assert may_be_batch(dimensions) is wanted


def test_a_model_of_speech_without_a_batch(tmp_path: Path) -> None:
    """Phonemes [length] and their pitch [length, 1]; binding the length to 1 gave a graph of other ranks."""
    path = wild_path("voicevox_predict_contour.onnx")
    arrays: dict[str, dict[str, Array]] = {}
    with np.load(path.with_suffix(".inputs.npz")) as stored:
        for key in stored.files:
            number, name = key.split("|")[:2]
            arrays.setdefault(number, {})[name] = stored[key]
    folder = tmp_path / "runs"
    folder.mkdir()
    for number, inputs in arrays.items():
        np.savez(folder / f"{number}.npz", **inputs)
    model = qglow.load_model(path)
    quantized = model.quantize(model.profile(folder))
    compared = qglow.compare(quantized, folder)
    assert compared.samples == len(arrays)
    assert compared.pairings[0].overall.sqnr_db > 35
