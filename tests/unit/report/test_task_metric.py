"""Metrics by name and by function, and what a comparison makes of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from qglow.core.errors import ComparisonFailed, DataError, UsageError
from qglow.core.types import Array
from qglow.display.document import Document
from qglow.display.markdown import to_markdown
from qglow.metrics import miou, psnr
from qglow.report.comparison import Limits, check, compare
from qglow.report.comparison_result import FLOAT, INT8, comparison_section
from qglow.report.task_metric import is_function_name, open_metric
from tests.unit.report.models import Function, samples


def hits(outputs: Mapping[str, Array], labels: Array) -> float:
    return float(np.mean(outputs["logits"].argmax(1) == labels))


def test_a_function_gets_what_it_names_and_every_program_is_measured() -> None:
    seen = []

    def metric(keys: list[str], outputs: Mapping[str, Array]) -> float:
        seen.append((tuple(keys), outputs["logits"].shape))
        return float(outputs["logits"].max())

    found = compare(Function(3, factor=2.0), Function(4), samples(7), metric=open_metric(metric)).metric
    assert found is not None and found.name == "metric"
    assert found.values[INT8] == pytest.approx(2.0 * found.values[FLOAT])
    assert seen == [(tuple(f"sample {i}" for i in range(7)), (7, 4))] * 2


def test_a_function_of_labels_gives_the_accuracy() -> None:
    data = samples(40, classes=4)
    result = compare(Function(factor=-1.0), Function(), data, metric=open_metric(hits))
    assert result.metric is not None
    assert result.metric.values == {name: accuracy.top1 for name, accuracy in result.accuracy.items()}
    drop = result.top1_drop()
    assert drop is not None and result.metric.drop(INT8, FLOAT) == pytest.approx(drop / 100)


def test_labels_have_to_be_there_where_they_are_asked_for() -> None:
    with pytest.raises(DataError, match="metric hits needs labels; sample 0 has none"):
        compare(Function(), Function(), samples(2, classes=None), metric=open_metric(hits))


def test_relative_metrics_have_no_figure_for_float() -> None:
    result = compare(Function(offset=0.1), Function(), samples(5), metric=open_metric("psnr"))
    assert result.metric is not None and set(result.metric.values) == {INT8}
    assert result.metric.drop(INT8, FLOAT) is None
    with pytest.raises(UsageError, match="cannot drop; limit its value"):
        check(result, Limits(metric_drop=1.0))


def test_limits_on_a_metric() -> None:
    result = compare(Function(factor=-1.0), Function(), samples(40, classes=4), metric=open_metric(hits))
    assert result.metric is not None
    value, drop = result.metric.values[INT8], result.metric.drop(INT8, FLOAT)
    assert drop is not None and drop > 0
    check(result, Limits(metric=value, metric_drop=drop + 1e-9))
    with pytest.raises(ComparisonFailed, match=r"hits is .* at least .*; hits drops by"):
        check(result, Limits(metric=value + 0.01, metric_drop=drop - 0.01))
    with pytest.raises(UsageError, match="metric"):
        check(compare(Function(), Function(), samples(2)), Limits(metric=1.0))


def test_a_function_in_a_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_metric.py").write_text("def best(outputs):\n    return max(outputs)\n")
    monkeypatch.chdir(tmp_path)
    assert open_metric("my_own_metric:best").wanted == ("outputs",)
    with pytest.raises(UsageError, match="^metric my_own_metric:worst: my_own_metric has no function"):
        open_metric("my_own_metric:worst")


def test_mistakes_are_named() -> None:
    with pytest.raises(
        UsageError, match="no metric is called 'mape'; there are psnr, miou, .* and module:function"
    ):
        open_metric("mape")
    with pytest.raises(UsageError, match="metric sqnr: every comparison has it, leave `metric` out"):
        open_metric("sqnr")
    with pytest.raises(UsageError, match="asks for boxes; its parameters are some of outputs, labels"):
        open_metric(lambda outputs, boxes: 0.0)
    with pytest.raises(UsageError, match="asks for nothing"):
        open_metric(lambda: 0.0)
    for function, message in (
        (lambda outputs: outputs["absent"], "raised KeyError"),
        (lambda outputs: math.nan, "is not a number"),
        (lambda outputs: "high", "raised ValueError"),
    ):
        with pytest.raises(UsageError, match=message):
            compare(Function(), Function(), samples(2), metric=open_metric(function))


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("a:b", True), ("a.b_c:d", True), ("psnr", False), ("a:", False), (":b", False), ("a-b:c", False)],
)
def test_names_of_functions(text: str, is_one: bool) -> None:
    assert is_function_name(text) is is_one


def test_psnr_by_hand() -> None:
    expected = {"y": np.array([[0.0, 2.0]]), "z": np.array([[1.0, 0.0]])}
    found = {"y": np.array([[0.2, 2.0]]), "z": np.array([[1.0, 0.0]])}
    assert psnr(found, expected) == pytest.approx(10 * math.log10(2.0**2 / (0.04 / 4)))
    assert psnr(expected, expected) == math.inf


def test_miou_by_hand() -> None:
    classes = np.array([[0, 0, 1, 1, 2, 2]]), np.array([[0, 0, 0, 1, 2, 2]])
    expected, found = ({"y": np.eye(4)[choice].transpose(0, 2, 1)} for choice in classes)
    # Class 0: 2 of 3; class 1: 1 of 2; class 2: all; class 3 is nowhere.
    assert miou(found, expected) == pytest.approx(100 * (2 / 3 + 1 / 2 + 1) / 3)
    assert miou(expected, expected) == 100.0
    with pytest.raises(ValueError, match=r"is not \[N, classes, ...\]"):
        miou({"y": np.zeros((1, 2))}, {"y": np.zeros((1, 2))})


def test_the_report_tells_metric_interval_and_flips() -> None:
    data = samples(40, classes=4)
    result = compare(Function(factor=-1.0), Function(), data, metric=open_metric(hits))
    text = to_markdown(Document("d", (comparison_section(result),)))
    assert "95 % interval" in text and "McNemar" in text and "| hits |" in text
    flips = result.pairing(INT8, FLOAT).flips
    assert flips is not None and flips.lost - flips.won == round(40 * (result.top1_drop() or 0.0) / 100)
    assert f"| {flips.lost} | {flips.won} |" in text
    plain = to_markdown(Document("d", (comparison_section(compare(Function(), Function(), samples(2))),)))
    assert "no difference beyond noise" in plain
    unlabelled = compare(Function(), Function(), samples(2, classes=None))
    assert unlabelled.pairing(INT8, FLOAT).flips is None
