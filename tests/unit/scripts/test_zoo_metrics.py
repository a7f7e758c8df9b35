"""Metrics of zoo models on small answers with known figures."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.errors import UsageError
from qglow.core.types import Array
from qglow.report.comparison_result import FLOAT, INT8, Comparison, Pairing
from qglow.report.metrics import ErrorSummary
from qglow.report.task_metric import MetricFigures, open_metric
from scripts.benchmarks.frame import run
from scripts.benchmarks.measurements.tasks import BENCHMARK, TASKS, to_row
from scripts.benchmarks.models.labelled import TASK_MODELS
from scripts.benchmarks.tasks import zoo_metrics

PHOTOS: dict[str, dict[str, list[list[float]]]] = {
    "near.jpg": {"size": [100, 100], "boxes": [[0, 10, 10, 60, 60], [3, 0, 0, 5, 5]]},  # type: ignore[list-item]
    "small.jpg": {"size": [100, 100], "boxes": [[0, 0, 0, 5, 5]]},  # type: ignore[list-item]
    "none.jpg": {"size": [100, 100], "boxes": []},  # type: ignore[list-item]
}


@pytest.fixture(autouse=True)
def photos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoo_metrics, "_photos", lambda: PHOTOS)


def test_a_person_is_large_or_absent() -> None:
    assert zoo_metrics.largest_person("val/near.jpg") == 0.25
    assert zoo_metrics.largest_person("small.jpg") == 0.0025
    assert zoo_metrics.largest_person("none.jpg") == 0.0
    answers = {"y": np.array([[0.1, 0.9], [0.2, 0.8], [0.7, 0.3]])}
    accuracy = zoo_metrics.person_accuracy(answers, ["near.jpg", "small.jpg", "none.jpg"])
    assert accuracy == pytest.approx(200 / 3)


def test_map50_finds_the_boxes_of_each_photo() -> None:
    output = np.zeros((2, 85, 10, 10), np.float32)
    output[:, 3:5] = -50.0
    # The first photo's person, 50 pixels wide about (35, 35), in the cell of row 3, column 3.
    output[0, :5, 3, 3] = 1.0, np.arctanh(0.5), np.arctanh(0.5), 0.0, 0.0
    output[0, 5, 3, 3] = 1.0
    found = zoo_metrics.fastestdet_map50({"out": output}, ["near.jpg", "none.jpg"])
    assert found == pytest.approx(50.0)  # class 0 in full, class 3 missed
    swapped = zoo_metrics.fastestdet_map50({"out": output}, ["none.jpg", "near.jpg"])
    assert swapped == 0.0


def test_psnr_is_of_the_patch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    side = zoo_metrics.PATCH * zoo_metrics.FACTOR
    true = np.full((side, side), 0.5)
    monkeypatch.setattr(zoo_metrics, "luminance", lambda key: true)
    answer: Array = np.full((1, 1, 672, 672), 7.0, np.float32)
    answer[0, 0, :side, :side] = 0.6
    answer[0, 0, :3, :side] = 0.0  # within the border, which does not count
    assert zoo_metrics.upscaled_psnr({"y": answer}, ["a"]) == pytest.approx(20.0, abs=1e-4)
    answer[0, 0, :side, :side] = 9.0  # clamped to 1
    assert zoo_metrics.upscaled_psnr({"y": answer}, ["a"]) == pytest.approx(20 * np.log10(2), abs=1e-4)


def test_faces_are_those_in_common_with_float() -> None:
    scores, offsets = np.zeros((1, 4420, 2), np.float32), np.zeros((1, 4420, 4), np.float32)
    large, small = 4420 - 1, 3 * 40 * 2 + 3 * 5 + 2  # last cell of stride 64; row 2, column 5 of stride 8
    scores[0, large, 1], scores[0, small, 1] = 0.9, 0.7
    offsets[0, small] = 5.0, 0.0, 0.0, 5.0 * np.log(2.0)
    expected = {"scores": scores, "boxes": offsets}
    (found,) = zoo_metrics._ultraface(expected)
    # 256 pixels about (288, 224); centre 44 + 12, 20; 24 wide and 48 high.
    corners = [[160.0, 96.0, 416.0, 352.0], [44.0, -4.0, 68.0, 44.0]]
    np.testing.assert_allclose(found.corners, corners, atol=1e-5)
    assert zoo_metrics.ultraface_agreement(expected, expected) == 100.0
    one_lost = {"scores": np.minimum(scores, np.float32(0.9)) - np.float32(0.3), "boxes": offsets}
    assert zoo_metrics.ultraface_agreement(one_lost, expected) == pytest.approx(200 / 3)
    moved = {"scores": scores, "boxes": offsets + np.float32(10.0)}
    assert zoo_metrics.ultraface_agreement(moved, expected) == 0.0


def test_faces_of_cells_are_in_pixels() -> None:
    counts = {8: 16, 16: 4, 32: 1}  # a square of 32 pixels
    answers: dict[str, Array] = {}
    for stride, cells in counts.items():
        answers[f"cls_{stride}"] = np.zeros((1, cells, 1), np.float32)
        answers[f"obj_{stride}"] = np.ones((1, cells, 1), np.float32)
        answers[f"bbox_{stride}"] = np.zeros((1, cells, 4), np.float32)
    answers["cls_16"][0, 3] = 0.81
    answers["bbox_16"][0, 3] = 0.5, 0.25, 0.0, np.log(2.0)
    (found,) = zoo_metrics._yunet(answers)
    # Centre (1.5, 1.25) cells of 16 pixels, one wide and two high.
    np.testing.assert_allclose(found.corners, [[16.0, 4.0, 32.0, 36.0]], rtol=1e-6)
    assert found.scores.tolist() == [pytest.approx(0.9)]
    assert zoo_metrics.yunet_agreement(answers, answers) == 100.0


def test_every_task_has_a_metric_and_its_row() -> None:
    errors = ErrorSummary(1, 0.0, 0.0, 0.0, 0.0, 0.0, 31.25, 1.0, 0)
    pairing = Pairing(INT8, FLOAT, {}, errors, None)
    assert list(TASKS) == [model.name for model in TASK_MODELS]
    for name, task in TASKS.items():
        metric = open_metric(task.metric)
        figures = MetricFigures(metric.name, {FLOAT: 50.0, INT8: 49.0})
        row = to_row(name, task, Comparison(4, (pairing,), {}, figures), (INT8, "NNCF"))
        assert row == (name, task.title, "4", "50.00", "49.00 / 31.2", "none")


def test_unknown_tasks_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(BENCHMARK, ["--models", "yolo"]) == UsageError.exit_code
    assert "yolo; there are mlperftiny_vww96" in capsys.readouterr().err
