from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from qglow.core.errors import ComparisonFailed, DataError, UsageError
from qglow.metrics.classification import classification_output
from qglow.report.comparison import Limits, check, compare
from qglow.report.comparison_result import FLOAT, INT8, QDQ, spread_tables
from qglow.report.drift import DriftLimits
from qglow.report.runner import run_samples
from qglow.report.task_metric import MetricFigures, Spread
from qglow.tuning.search import Goal
from tests.unit.report.models import Function, samples


def test_equal_programs_agree() -> None:
    result = compare(Function(), Function(), samples(7, classes=4))
    pairing = result.pairing(INT8, FLOAT)
    assert result.samples == 7
    assert pairing.overall.sqnr_db == math.inf
    assert pairing.agreement is not None
    assert (pairing.agreement.samples, pairing.agreement.top1, pairing.agreement.top5) == (7, 1.0, 1.0)
    assert result.top1_drop() == 0.0
    check(result, Limits(top1_drop=0.0, agreement=100.0, sqnr_db=300.0))


@pytest.mark.parametrize("limit", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", [Limits, DriftLimits, Goal])
def test_limits_are_finite(kind: type, limit: float) -> None:
    for field in dataclasses.fields(kind):
        with pytest.raises(UsageError, match=f"^{field.name} .*a finite number"):
            kind(**{field.name: limit})


def test_a_metric_that_is_nan_keeps_to_no_limit() -> None:
    measured = dataclasses.replace(
        compare(Function(), Function(), samples(4, classes=4)),
        metric=MetricFigures("own", {INT8: math.nan, FLOAT: 1.0}),
    )
    check(measured, Limits())
    with pytest.raises(ComparisonFailed, match="own is nan"):
        check(measured, Limits(metric=-1e9))
    with pytest.raises(ComparisonFailed, match="own drops by nan"):
        check(measured, Limits(metric_drop=1e9))


@pytest.mark.parametrize("subject_batch", [1, 3, 5])
@pytest.mark.parametrize("reference_batch", [1, 4])
def test_batches_and_remainders_change_nothing(subject_batch: int, reference_batch: int) -> None:
    data = samples(11, classes=4)
    expected = compare(Function(factor=1.25), Function(), data)
    found = compare(Function(subject_batch, factor=1.25), Function(reference_batch), data)
    assert found.samples == expected.samples == 11
    assert found.accuracy == expected.accuracy
    wanted, given = expected.pairings[0], found.pairings[0]
    assert given.agreement == wanted.agreement
    assert given.overall.elements == wanted.overall.elements == 44
    assert given.overall.max_abs == wanted.overall.max_abs
    assert given.overall.sqnr_db == pytest.approx(wanted.overall.sqnr_db)


def test_accuracy_counts_labels_of_every_program() -> None:
    data = samples(50, classes=4)
    labels = np.array([s.label for s in data])
    scores = np.stack([s.inputs["x"] for s in data])
    shift = np.array([2.0, 0.0, 0.0, 0.0])
    result = compare(Function(4, offset=shift), Function(), data, rivals={QDQ: Function(factor=-1.0)})
    assert list(result.accuracy) == [FLOAT, INT8, QDQ]
    assert result.accuracy[FLOAT].top1 == np.mean(scores.argmax(1) == labels)
    assert result.accuracy[INT8].top1 == np.mean((scores + shift).argmax(1) == labels)
    assert result.accuracy[QDQ].top1 == np.mean((-scores).argmax(1) == labels)
    drop = result.top1_drop()
    assert drop == pytest.approx(100 * (result.accuracy[FLOAT].top1 - result.accuracy[INT8].top1))
    assert [(p.subject, p.reference) for p in result.pairings] == [(INT8, FLOAT), (INT8, QDQ), (QDQ, FLOAT)]


def test_unlabelled_data_gives_agreement_alone() -> None:
    result = compare(Function(), Function(), samples(3, classes=None))
    assert result.accuracy == {}
    assert result.pairings[0].agreement is not None
    with pytest.raises(UsageError, match="labelled"):
        check(result, Limits(top1_drop=1.0))


def test_only_labelled_samples_count_for_accuracy() -> None:
    data = [*samples(3, classes=4), *samples(2, classes=None)]
    result = compare(Function(2), Function(), data)
    assert result.samples == 5
    assert result.accuracy[INT8].samples == 3


def test_every_broken_limit_is_named() -> None:
    data = samples(40, classes=4)
    result = compare(Function(factor=-1.0), Function(), data)
    with pytest.raises(ComparisonFailed, match=r"% agree.*SQNR") as caught:
        check(result, Limits(agreement=99.0, sqnr_db=20.0))
    assert caught.value.exit_code == 1


def test_nan_fails_even_without_limits() -> None:
    result = compare(Function(factor=math.nan), Function(), samples(2))
    with pytest.raises(ComparisonFailed, match="8 elements are NaN"):
        check(result, Limits())


def test_a_label_outside_the_classes_is_named() -> None:
    data = samples(4, classes=4)
    bad = [*data[:2], type(data[0])("sample of trouble", data[0].inputs, 4)]
    with pytest.raises(DataError, match="sample of trouble: label 4, but the model has 4 classes"):
        compare(Function(), Function(), bad)


def test_labels_tell_classes_where_scores_are_named() -> None:
    named = compare(Function(), Function(), samples(4, classes=None), scores=["logits"])
    assert named.pairing(INT8, FLOAT).agreement is not None
    waves = compare(Function(), Function(), samples(4, classes=None), scores=())
    assert waves.pairing(INT8, FLOAT).agreement is None and not waves.accuracy
    labelled = compare(Function(), Function(), samples(4, classes=4), scores=())
    assert labelled.accuracy and labelled.pairing(INT8, FLOAT).agreement is not None


def test_no_samples_is_an_error() -> None:
    with pytest.raises(DataError, match="no samples"):
        compare(Function(), Function(), [])


def test_unknown_program_in_pairs_is_an_error() -> None:
    with pytest.raises(UsageError, match="no program is called openvino"):
        compare(Function(), Function(), samples(1), pairs=[("openvino", FLOAT)])


def test_classification_is_recognised_by_shape() -> None:
    assert classification_output({"boxes": np.zeros((2, 4, 5)), "y": np.zeros((2, 9, 1, 1))}, 2) == "y"
    assert classification_output({"y": np.zeros((2, 1))}, 2) is None
    assert classification_output({"y": np.zeros((4, 9))}, 2) is None


def test_an_output_without_batch_axis_cannot_be_cut() -> None:
    class Total(Function):
        def __call__(self, inputs):  # type: ignore[no-untyped-def]
            return {"total": np.sum(inputs["x"], keepdims=True)[0]}

    data = {"x": np.ones((3, 4), np.float32)}
    with pytest.raises(UsageError, match="no batch axis"):
        run_samples(Total(2), data)
    assert run_samples(Total(3), data)["total"] == [12.0]


def test_an_output_that_folds_samples_into_rows_is_cut_in_proportion() -> None:
    class Rows(Function):
        def __call__(self, inputs):  # type: ignore[no-untyped-def]
            return {"rows": inputs["x"].reshape(-1, 2)}

    data = {"x": np.arange(12, dtype=np.float32).reshape(3, 4)}
    assert np.array_equal(run_samples(Rows(2), data)["rows"], data["x"].reshape(6, 2))


def test_progress_is_told_in_samples() -> None:
    told: list[int] = []
    compare(Function(4), Function(), samples(10), advance=told.append)
    assert told == [4, 4, 2]


def test_numbers_whose_mean_a_metric_is_are_told_apart() -> None:
    numbers = np.zeros((2, 8))
    numbers[1, 5], numbers[0, 0], numbers[0, 7] = 4.0, 1.0, np.nan
    spread = Spread.of(numbers, ["a", "b"])
    assert (spread.largest, spread.sample, spread.position) == (4.0, "b", 5)
    assert spread.high == np.nanpercentile(numbers, 99)
    assert spread.quarters == (0.25, 0.0, 1.0, 0.0)
    assert Spread.of(numbers[:, :3], ["a", "b"]).quarters == ()
    figures = MetricFigures("kl_float", {INT8: 1.0}, True, {INT8: spread})
    ends, along = spread_tables(figures)
    assert "b, 5" in str(ends) and "0.25" in str(along)
