"""Agreement and accuracy by position, in comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

from qglow.core.errors import ComparisonFailed, DataError, UsageError
from qglow.core.types import Array, ElementType, TensorType, float_type
from qglow.profiling.labels import Label
from qglow.profiling.samples import Sample
from qglow.report.comparison import Limits, check, compare
from qglow.report.comparison_result import FLOAT, INT8
from qglow.report.task_metric import Answers, open_metric

CLASSES = 6


@dataclass
class Tagger:
    """Scores [N, T, CLASSES] of tokens [N, T]: the best class is the token, less where it is in `wrong`."""

    wrong: tuple[int, ...] = ()
    real: bool = False
    shape: tuple[int, ...] = (1, 4)
    seen: list[int] = field(default_factory=list)

    @property
    def inputs(self) -> dict[str, TensorType]:
        return {"x": float_type(*self.shape) if self.real else TensorType(ElementType.INT64, self.shape)}

    def __call__(self, inputs: Mapping[str, Array], /) -> dict[str, Array]:
        tokens = inputs["x"].astype(np.int64)
        best = np.where(np.isin(tokens, self.wrong), (tokens + 1) % CLASSES, tokens)
        return {"y": np.eye(CLASSES, dtype=np.float32)[best] * 8}


def data(*labels: Label | None, real: bool = False) -> list[Sample]:
    tokens = np.arange(4, dtype=np.float32 if real else np.int64)
    return [Sample(f"s{i}", {"x": tokens}, label) for i, label in enumerate(labels)]


def test_labels_of_positions_give_accuracy_agreement_and_flips_of_positions() -> None:
    result = compare(Tagger(wrong=(3,)), Tagger(), data((0, 1, 2, 3), (0, 1, 5, 4)))
    assert result.counted == "positions" and result.samples == 2
    assert (result.accuracy[FLOAT].samples, result.accuracy[FLOAT].top1) == (8, 6 / 8)
    assert result.accuracy[INT8].top1 == 6 / 8  # one lost, and one won: the second sample's 4 is 3 + 1
    pairing = result.pairing(INT8, FLOAT)
    assert pairing.flips is not None and (pairing.flips.lost, pairing.flips.won) == (1, 1)
    assert pairing.agreement is not None and pairing.agreement.top1 == 6 / 8
    with pytest.raises(ComparisonFailed, match="75.00 % agree"):
        check(result, Limits(agreement=80.0))


def test_positions_that_do_not_count_have_no_say_in_anything() -> None:
    result = compare(Tagger(wrong=(3,)), Tagger(), data((0, 1, 2, -100), (-100,) * 4))
    pairing = result.pairing(INT8, FLOAT)
    assert result.accuracy[INT8].samples == 3 and result.accuracy[INT8].top1 == 1.0
    assert pairing.agreement is not None and (pairing.agreement.samples, pairing.agreement.top1) == (3, 1.0)
    nothing = compare(Tagger(), Tagger(), data((-100,) * 4))
    assert nothing.accuracy == {} and nothing.pairing(INT8, FLOAT).agreement is None


def test_tokens_alone_give_agreement_by_position() -> None:
    result = compare(Tagger(wrong=(3,)), Tagger(), data(None, None))
    pairing = result.pairing(INT8, FLOAT)
    assert pairing.agreement is not None and (pairing.agreement.samples, pairing.agreement.top1) == (8, 0.75)
    assert result.accuracy == {} and result.counted == "positions"


def test_three_axes_without_tokens_or_labels_are_not_classes() -> None:
    result = compare(Tagger(real=True), Tagger(real=True), data(None, real=True))
    assert result.pairing(INT8, FLOAT).agreement is None


def test_labels_outside_of_the_classes_name_their_position() -> None:
    with pytest.raises(DataError, match="s1, position 2: label 6, but the model has 6 classes"):
        compare(Tagger(), Tagger(), data((0, 1, 2, 3), (0, 1, 6, 3)))


def test_rows_of_labels_that_fit_no_output_are_an_error_without_a_metric_for_them() -> None:
    with pytest.raises(
        DataError, match=r"s0: a row of 3 labels needs an output \[N, 3, classes\], but .* 'y'"
    ):
        compare(Tagger(), Tagger(), data((0, 1, 2)))
    metric = open_metric("exact_match:ctc")
    result = compare(Tagger(), Tagger(), data((1, 2, 3)), metric=metric)
    assert result.metric is not None and result.metric.values[INT8] == 100.0
    assert result.accuracy == {}


def test_lower_is_better_turns_drops_and_limits() -> None:
    labelled = data((0, 1, 2, 3))
    result = compare(Tagger(wrong=(3,)), Tagger(), labelled, metric=open_metric("cross_entropy"))
    assert result.metric is not None and result.metric.lower_is_better
    drop = result.metric.drop(INT8, FLOAT)
    assert drop == pytest.approx(8 / 4)
    check(result, Limits(max_metric=3.0, metric_drop=2.1))
    with pytest.raises(ComparisonFailed, match="cross_entropy is 2.0.*, at most 1 may be; .* rises by 2"):
        check(result, Limits(max_metric=1.0, metric_drop=1.0))
    with pytest.raises(UsageError, match="better the lower it is: limit `max_metric`"):
        check(result, Limits(metric=1.0))
    higher = compare(Tagger(), Tagger(), labelled, metric=open_metric("log_likelihood"))
    with pytest.raises(UsageError, match="better the higher it is: limit `min_metric`"):
        check(higher, Limits(max_metric=1.0))


def test_a_metric_gets_labels_of_positions_and_optional_ones_only_where_all_samples_have_them() -> None:
    seen: list[object] = []

    def measured(outputs: object, labels: object = None) -> float:
        seen.append(labels)
        return 0.0

    for labels in (((1, 2), (3, -100)), ((1, 2), None), ((1, 2), (3,))):
        answers = Answers(False, ["a", "b"], list(labels), {"y": [np.zeros((2, 2, 4))]})
        assert open_metric(measured).of(answers, answers) == 0.0
    assert np.array_equal(np.asarray(seen[0]), [[1, 2], [3, -100]]) and seen[1:] == [None, None]
    with pytest.raises(DataError, match="labels of the same length"):
        open_metric("top1").of(answers, answers)


def test_sequences_are_labels_of_the_data_without_a_truth_file() -> None:
    scores = np.eye(4)[np.array([[1, 1, 0, 2], [3, 0, 0, 0]])]
    answers = Answers(False, ["a", "b"], [(1, 2, -100), (3,)], {"y": [scores]})
    assert open_metric("exact_match").of(answers, answers) == 100.0
    answers.labels[1] = None
    with pytest.raises(DataError, match="metric exact_match needs labels; b has none"):
        open_metric("exact_match").of(answers, answers)
