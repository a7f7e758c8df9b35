"""Verdicts on detectors that give their best boxes, in an order that the least noise turns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import qglow
from qglow.core.types import Array
from qglow.recipe.choices import Calibration
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe

CELLS, BEST = 64, 12


def _detector(path: Path, *, ranked: bool = True) -> Path:
    """Boxes [1, 12, 4] of the 12 best of 64 cells, and a number of features, of x [1, 16]."""
    random = np.random.default_rng(6)
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "b"], ["flat"]),
        helper.make_node("Reshape", ["flat", "cells"], ["boxes"]),
        helper.make_node("Gemm", ["r", "s"], ["logits"]),
        helper.make_node("Sigmoid", ["logits"], ["scores"]),
        helper.make_node("TopK", ["scores", "best"], ["top", "places"], axis=1),
        helper.make_node("Squeeze", ["places", "first"], ["row"]),
        helper.make_node("Gather", ["boxes", "row" if ranked else "fixed"], ["y"], axis=1),
    ]
    weights: dict[str, Array] = {
        "w": random.normal(size=(16, 32)).astype(np.float32),
        "b": random.normal(size=(32, 4 * CELLS)).astype(np.float32),
        "s": (random.normal(size=(32, CELLS)) * 0.002).astype(np.float32),
        "cells": np.int64([1, CELLS, 4]),
        "best": np.int64([BEST]),
        "first": np.int64([0]),
        "fixed": np.arange(BEST),
    }
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    floats = {"x": [1, 16], "y": [1, BEST, 4], "r": [1, 32]}
    info = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in floats.items()}
    graph = helper.make_graph(nodes, "g", [info["x"]], [info["y"], info["r"]], held)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def _keypoints(path: Path) -> Path:
    """Columns and rows [1, 12, 2] of the 12 best cells of 8 x 8, from -1 to 1, and features there."""
    random = np.random.default_rng(6)
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "s"], ["scores"]),
        helper.make_node("TopK", ["scores", "best"], ["top", "places"], axis=1),
        helper.make_node("Mod", ["places", "width"], ["columns"]),
        helper.make_node("Div", ["places", "width"], ["rows"]),
        helper.make_node("Unsqueeze", ["columns", "last"], ["column"]),
        helper.make_node("Unsqueeze", ["rows", "last"], ["row"]),
        helper.make_node("Concat", ["column", "row"], ["cells"], axis=2),
        helper.make_node("Cast", ["cells"], ["reals"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["reals", "half"], ["doubled"]),
        helper.make_node("Sub", ["doubled", "one"], ["y"]),
        helper.make_node("Gemm", ["r", "f"], ["features"]),
        helper.make_node("Floor", ["reals"], ["whole"]),
        helper.make_node("Cast", ["whole"], ["again"], to=TensorProto.INT64),
        helper.make_node("Squeeze", ["again", "zero"], ["at"]),
        helper.make_node("Gather", ["features", "at"], ["d"], axis=1),
    ]
    weights: dict[str, Array] = {
        "w": random.normal(size=(16, 32)).astype(np.float32),
        "s": (random.normal(size=(32, CELLS)) * 0.002).astype(np.float32),
        "f": (random.normal(size=(32, 8))).astype(np.float32),
        "zero": np.int64([0]),
        "best": np.int64([BEST]),
        "width": np.int64([8]),
        "last": np.int64([2]),
        "half": np.float32(3.5),
        "one": np.float32(1.0),
    }
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    floats = {"x": [1, 16], "y": [1, BEST, 2], "d": [1, BEST, 2], "top": [1, BEST]}
    info = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in floats.items()}
    graph = helper.make_graph(nodes, "g", [info["x"]], [info[n] for n in ("y", "d", "top")], held)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def _decoder(path: Path) -> Path:
    """Scores and boxes [N, 12, 4] by layers that work on the 12 best of 64 places, and these, as a DETR."""
    random = np.random.default_rng(6)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["flat"]),
        helper.make_node("Reshape", ["flat", "places"], ["memory"]),
        helper.make_node("MatMul", ["x", "s"], ["likely"]),
        helper.make_node("TopK", ["likely", "best"], ["top", "ranks"], axis=1),
        helper.make_node("Unsqueeze", ["ranks", "last"], ["rank"]),
        helper.make_node("Tile", ["rank", "wide"], ["of_queries"]),
        helper.make_node("GatherElements", ["memory", "of_queries"], ["queries"], axis=1),
        helper.make_node("MatMul", ["queries", "a"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "c"], ["scores"]),
        helper.make_node("MatMul", ["r", "b"], ["moved"]),
        helper.make_node("Tile", ["rank", "four"], ["of_boxes"]),
        helper.make_node("Slice", ["memory", "zero", "four_columns", "columns"], ["anchors"]),
        helper.make_node("GatherElements", ["anchors", "of_boxes"], ["near"], axis=1),
        helper.make_node("Add", ["near", "moved"], ["boxes"]),
    ]
    weights: dict[str, Array] = {
        "w": random.normal(size=(16, CELLS * 8)).astype(np.float32),
        "s": (random.normal(size=(16, CELLS)) * 0.002).astype(np.float32),
        "a": random.normal(size=(8, 32)).astype(np.float32),
        "c": random.normal(size=(32, 4)).astype(np.float32),
        "b": random.normal(size=(32, 4)).astype(np.float32),
        "places": np.int64([-1, CELLS, 8]),
        "best": np.int64([BEST]),
        "last": np.int64([2]),
        "wide": np.int64([1, 1, 8]),
        "four": np.int64([1, 1, 4]),
        "zero": np.int64([0]),
        "four_columns": np.int64([4]),
        "columns": np.int64([2]),
    }
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    floats = {"x": ["N", 16], "scores": ["N", BEST, 4], "boxes": ["N", BEST, 4]}
    info = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in floats.items()}
    info["ranks"] = helper.make_tensor_value_info("ranks", TensorProto.INT64, ["N", BEST])
    outputs = [info[name] for name in ("scores", "boxes", "ranks")]
    graph = helper.make_graph(nodes, "g", [info["x"]], outputs, held)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def _quantized(path: Path, batch: int = 1, **options: object) -> qglow.QuantizedModel:
    random = np.random.default_rng(7)
    data = {"x": random.normal(size=(24, 16)).astype(np.float32)}
    model = qglow.load_model(path, shapes={"x": (batch, 16)})
    return model.quantize(model.profile(data), **options)  # type: ignore[arg-type]


def test_what_is_ranked_is_compared_and_not_what_comes_first(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    made = _quantized(_detector(tmp_path / "m.onnx"), repair=False)
    verdict = made.verdict
    assert verdict is not None and verdict.word == "good", verdict
    assert [output.name for output in verdict.outputs] == ["boxes", "scores", "r"]
    assert "chooses the elements of 'y' by rank" in verdict.note
    data = {"x": random.normal(size=(8, 16)).astype(np.float32)}
    found = qglow.compare(made, data).pairings[0].outputs["y"]
    assert found.sqnr_db < 6.0  # the order of nearly equal scores turns


def test_places_by_rank_may_be_outputs_themselves(tmp_path: Path) -> None:
    """Keypoints, whose coordinates were compared place by place."""
    verdict = _quantized(_keypoints(tmp_path / "m.onnx"), repair=False).verdict
    assert verdict is not None and verdict.word == "good", verdict
    assert {output.name for output in verdict.outputs} == {"scores", "features", "top"}
    assert "chooses the elements of 'y', 'd' by rank" in verdict.note


def test_repair_looks_at_what_is_ranked(tmp_path: Path) -> None:
    """Nothing helps the order of nearly equal scores, and what is chosen from is good in int8."""
    made = _quantized(_detector(tmp_path / "m.onnx"))
    assert made.report is not None
    assert "Gemm" not in {node.operator for node in made.report.float_nodes}
    calibrations_and_rows = ("calibration", "measures its rows", "measure their rows")
    assert all(any(w in repair.what for w in calibrations_and_rows) for repair in made.report.repairs)
    assert all(repair.before_db is not None and repair.before_db > 15.0 for repair in made.report.repairs)
    again = _quantized(_detector(tmp_path / "again.onnx"), calibration="percentile:70")
    assert again.verdict is not None and again.verdict.word == "good"


@pytest.mark.parametrize("ranked", [True, False])
def test_a_broken_detector_is_not_good(tmp_path: Path, ranked: bool) -> None:
    verdict = _quantized(
        _detector(tmp_path / "m.onnx", ranked=ranked), calibration="percentile:51", repair=False
    ).verdict
    assert verdict is not None and verdict.word != "good"
    assert ("by rank" in verdict.note) == ranked


@pytest.mark.parametrize("batch", [1, 5])
def test_layers_behind_a_choice_are_compared_on_the_same_choice(tmp_path: Path, batch: int) -> None:
    """The verdict told of queries in another order, and nothing of what a decoder adds to chosen boxes."""
    made = _quantized(_decoder(tmp_path / "m.onnx"), batch, repair=False)
    verdict = made.verdict
    assert verdict is not None and verdict.word == "good", verdict
    assert [output.name for output in verdict.outputs] == ["scores", "boxes", "likely"]
    assert "the float model's choice" in verdict.note and "elements of 'ranks' by rank" in verdict.note
    data = {"x": np.random.default_rng(7).normal(size=(10, 16)).astype(np.float32)}
    found = qglow.compare(made, data).pairings[0].outputs
    levels = {output.name: output.sqnr_db for output in verdict.outputs}
    assert all(found[name].sqnr_db < levels[name] - 5.0 for name in ("scores", "boxes"))


def test_repair_goes_on_with_the_float_models_choice(tmp_path: Path) -> None:
    """It found nothing to repair, because the order of queries hid what a calibration changes."""
    made = _quantized(_decoder(tmp_path / "m.onnx"))
    assert made.report is not None and made.verdict is not None and made.verdict.sqnr_db is not None
    assert made.report.repairs[0].what.startswith("calibration")
    assert made.verdict.sqnr_db > 25.0


def test_broken_layers_behind_a_choice_are_not_good(tmp_path: Path) -> None:
    """Boxes alone are broken here, to which the layers add what they make of the choice."""
    rule = Rule(Match(name="moved.*"), calibration=Calibration.parse("percentile:51"))
    recipe = Recipe(rules=(rule,))
    verdict = _quantized(_decoder(tmp_path / "m.onnx"), recipe=recipe, repair=False).verdict
    assert verdict is not None and verdict.word != "good"
    levels = {output.name: output.sqnr_db for output in verdict.outputs}
    assert levels["boxes"] < 10.0 < levels["scores"]
