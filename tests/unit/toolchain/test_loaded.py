from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from onnx import TensorProto, helper, save

import qglow
from qglow.core.errors import ModelError, ProfileError, UsageError
from qglow.toolchain.calibration import CalibrationRuns, CalibrationSamples
from qglow.toolchain.loaded import read_model, read_profiled_model
from tests.zoo import REPOSITORY

DIGITS = REPOSITORY / "calib_data" / "digits.onnx"
CALIBRATION = REPOSITORY / "calib_data" / "calib.npz"


def test_another_batch_changes_shapes_and_no_names() -> None:
    model = read_model(DIGITS)
    four = model.with_batch(4)
    assert (model.batch_size, four.batch_size) == (1, 4)
    assert four.shapes == {"input": (4, 1, 8, 8)}
    assert [node.name for node in four.graph.nodes] == [node.name for node in model.graph.nodes]
    assert model.with_batch(1) is model
    assert four.with_profiled_batch().shapes == model.shapes


def test_other_passes_are_kept_with_another_batch() -> None:
    model = read_model(DIGITS, passes="fold-constants")
    assert model.passes == "fold-constants"
    assert model.with_batch(2).passes == "fold-constants"


def test_model_of_a_profile_is_found_and_checked(tmp_path: Path) -> None:
    profile = qglow.load_model(DIGITS).profile(CALIBRATION, samples=2, engine="interpreter")
    assert read_profiled_model(profile).sha256 == profile.model.sha256
    with pytest.raises(ModelError, match="missing"):
        read_profiled_model(profile, tmp_path / "moved.onnx")
    other = replace(profile, shapes={"images": (1, 1, 8, 8)})
    with pytest.raises(ProfileError, match="another model"):
        read_profiled_model(other)


def test_batches_of_calibration_samples_are_whole_and_spread_evenly() -> None:
    graph, recipe = read_model(DIGITS, {"input": (3, 1, 8, 8)}).graph, qglow.Recipe()
    runs = CalibrationRuns.of(graph, recipe, CalibrationSamples(str(CALIBRATION), samples=20))
    assert len(runs) == 6
    every = list(runs)
    assert [inputs["input"].shape for inputs in every] == [(3, 1, 8, 8)] * 6
    spread = runs.spread(3)
    assert [run["input"].tobytes() for run in spread] == [every[i]["input"].tobytes() for i in (0, 2, 4)]
    assert len(runs.spread(100)) == 6


def test_unknown_pass_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no-such-pass"):
        read_model(DIGITS, passes="no-such-pass")


def test_axes_of_outputs_are_open_where_more_than_the_batch_of_inputs_is(tmp_path: Path) -> None:
    def written(taken: list[object], given: list[object] | None) -> Path:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, taken)
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, given)
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
        path = tmp_path / "m.onnx"
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
        return path

    def axes(taken: list[object], given: list[object] | None) -> dict[str, frozenset[int]]:
        return read_model(written(taken, given), {"x": (1, 8)}).open_output_axes

    assert axes(["n", 8], ["n", "m"]) == axes(["n", 8], None) == {}
    assert axes(["n", "m"], ["n", 8]) == {"y": {0}}
    assert axes(["n", "m"], ["n", "k"]) == axes(["n", "m"], None) == {"y": {0, 1}}
