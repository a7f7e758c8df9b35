"""Words of verdicts, their limits, and how they are told."""

from __future__ import annotations

import math

import pytest

from qglow.core.errors import ComparisonFailed, UsageError
from qglow.display.document import Document
from qglow.display.markdown import to_markdown
from qglow.display.plain import from_plain, to_plain
from qglow.report.output_errors import OutputError, OutputErrors, StreamErrors
from qglow.report.verdict import (
    BROKEN,
    GOOD,
    GOOD_DB,
    SUSPICIOUS,
    ModelVerdict,
    WorstValue,
    can_be_judged,
    measured_verdict,
    predicted_verdict,
    verdict_section,
    word_of,
)


def errors(*outputs: tuple[float | None, float | None], non_finite: int = 0) -> OutputErrors:
    """Outputs by SQNR and agreement."""
    made = [OutputError(f"y{i}", db, share, non_finite, 0.5) for i, (db, share) in enumerate(outputs)]
    return OutputErrors(8, tuple(made))


@pytest.mark.parametrize(
    ("outputs", "word"),
    [
        ([(15.0, None)], GOOD),
        ([(math.inf, None)], GOOD),
        ([(14.9, None)], SUSPICIOUS),
        ([(6.0, None)], SUSPICIOUS),
        ([(5.9, None)], BROKEN),
        ([(-3.0, None)], BROKEN),
        ([(40.0, None), (5.0, None)], BROKEN),
        ([(30.0, 1.0)], GOOD),
        ([(30.0, 0.375)], SUSPICIOUS),
        ([(10.0, 0.375)], BROKEN),
        ([(10.0, 0.5)], SUSPICIOUS),
        ([(None, 1.0)], GOOD),
        ([(None, 0.75)], GOOD),
        ([(None, 0.7)], SUSPICIOUS),
        ([(None, 0.4)], BROKEN),
        ([(30.0, None), (None, 0.1)], GOOD),
        ([(30.0, None), (None, None)], GOOD),
    ],
)
def test_words(outputs: list[tuple[float | None, float | None]], word: str) -> None:
    assert word_of(errors(*outputs)) == word


@pytest.mark.parametrize(
    ("sqnr_db", "agreement", "beyond_chance", "probabilities", "word"),
    [
        (11.2, 0.95, 0.92, True, GOOD),
        (11.2, 0.95, 0.85, True, SUSPICIOUS),
        (11.2, 0.95, 0.92, False, SUSPICIOUS),
        (5.9, 0.95, 0.92, True, BROKEN),
        (11.2, 0.9, 0.0, True, BROKEN),
        (25.0, 0.9, 0.0, False, SUSPICIOUS),
        (25.0, 0.9, 0.6, False, GOOD),
        (25.0, 0.99, None, True, GOOD),
        (11.2, 1.0, None, True, SUSPICIOUS),
    ],
)
def test_words_on_scores_at_positions(
    sqnr_db: float, agreement: float, beyond_chance: float | None, probabilities: bool, word: str
) -> None:
    output = OutputError("y", sqnr_db, agreement, 0, 0.5, beyond_chance, probabilities)
    verdict = measured_verdict(OutputErrors(8, (output,)))
    assert verdict.word == word
    assert bool(verdict.suffering) == (word != GOOD)
    poor = OutputError("z", 7.0, None, 0, 0.5)
    assert word_of(OutputErrors(8, (output, poor))) in (SUSPICIOUS, BROKEN)


@pytest.mark.parametrize(
    ("sqnr_db", "agreement", "logarithms_db", "word"),
    [
        (13.0, 0.875, 20.0, GOOD),
        (13.0, 0.875, 14.9, SUSPICIOUS),
        (13.0, 0.875, None, SUSPICIOUS),
        (13.0, 0.7, 20.0, SUSPICIOUS),
        (5.9, 0.875, 20.0, BROKEN),
        (20.0, 0.9, 3.0, GOOD),
    ],
)
def test_words_on_probabilities_of_samples(
    sqnr_db: float, agreement: float, logarithms_db: float | None, word: str
) -> None:
    """A softmax behind the scores changes nothing about a model."""
    output = OutputError("y", sqnr_db, agreement, 0, 0.5, logarithms_db=logarithms_db)
    verdict = measured_verdict(OutputErrors(32, (output,)))
    assert verdict.word == word
    told = f"{logarithms_db or 0.0:.2f} dB of the logarithms" in text(verdict)
    assert told == (word == GOOD and sqnr_db < GOOD_DB)
    assert bool(verdict.suffering) == (word != GOOD)


def test_probabilities_that_agree_do_not_hide_nan() -> None:
    output = OutputError("y", 12.0, 1.0, 1, 0.5, 1.0, True)
    assert word_of(OutputErrors(8, (output,))) == BROKEN


def test_the_end_of_a_stream_may_make_the_verdict_worse() -> None:
    def streamed(last: float) -> ModelVerdict:
        return measured_verdict(
            errors((30.0, None)), (), StreamErrors(64, errors((25.0, 1.0)), errors((last, 0.9)))
        )

    assert [streamed(last).word for last in (20.0, 10.0, 3.0)] == [GOOD, SUSPICIOUS, BROKEN]
    told = text(streamed(10.0))
    assert "as a stream of 64 calls 25.00 dB, agreement 100.00 % in its first quarter, 10.00 dB" in told
    assert from_plain(ModelVerdict, to_plain(streamed(10.0))) == streamed(10.0)
    with pytest.raises(ComparisonFailed, match="at least 15 dB"):
        streamed(10.0).require(15.0)
    zeros = measured_verdict(
        errors((30.0, None)), (), StreamErrors(64, errors((None, None)), errors((None, None)))
    )
    assert zeros.word == GOOD and "no figures" in text(zeros)


def test_new_nan_breaks_a_model() -> None:
    assert word_of(errors((40.0, None), non_finite=1)) == BROKEN


def test_outputs_without_figures_cannot_be_judged() -> None:
    assert not can_be_judged(errors((None, None)))
    assert can_be_judged(errors((None, 1.0))) and can_be_judged(errors((3.0, None)))


def test_a_limit_fails_below_it_alone() -> None:
    verdict = measured_verdict(errors((20.0, 1.0)))
    verdict.require(20.0)
    verdict.require(strict=True)
    with pytest.raises(ComparisonFailed, match="SQNR 20.00 dB.*at least 20.5 dB"):
        verdict.require(20.5)
    for word in (SUSPICIOUS, BROKEN):
        poor = ModelVerdict(word, 8, 3.0, None)
        poor.require()
        with pytest.raises(ComparisonFailed, match=word):
            poor.require(strict=True)


@pytest.mark.parametrize("limit", [math.nan, math.inf, -math.inf])
def test_a_limit_is_a_finite_number(limit: float) -> None:
    with pytest.raises(UsageError, match="finite"):
        measured_verdict(errors((20.0, 1.0))).require(limit)


def test_a_limit_needs_an_output_with_a_level() -> None:
    with pytest.raises(UsageError, match="no output has a signal-to-noise ratio"):
        measured_verdict(errors((None, 1.0))).require(10.0)


def text(verdict: ModelVerdict) -> str:
    return to_markdown(Document("report", (verdict_section(verdict),)))


def test_a_verdict_tells_what_suffers_and_why() -> None:
    worst = tuple(WorstValue(f"v{i}", 0.2, "kl clips 96 % of its energy") for i in range(7))
    verdict = measured_verdict(errors((3.0, 0.25), (30.0, None)), worst)
    assert len(verdict.worst) == 5
    told = text(verdict)
    assert "Verdict: broken" in told and "SQNR 3.00 dB, agreement 25.00 %, measured on 8 samples" in told
    assert "y0" in told and "y1" not in told and "96 % of its energy" in told


@pytest.mark.parametrize(("samples", "warned"), [(0, False), (1, True), (7, True), (8, False)])
def test_a_verdict_on_few_samples_says_that_they_set_the_ranges(samples: int, warned: bool) -> None:
    told = text(ModelVerdict(GOOD, samples, 40.0, None))
    assert ("also set the ranges" in told) == warned


def test_a_prediction_says_so() -> None:
    told = text(predicted_verdict(11.6, note="p.samples.npz, samples of p.yaml, is missing"))
    assert "SQNR about 12 dB, predicted from the profile" in told and "is missing" in told


@pytest.mark.parametrize(
    "verdict",
    [
        measured_verdict(errors((-math.inf, 0.25), (None, 0.5), non_finite=2), (WorstValue("v", 1.5, "w"),)),
        predicted_verdict(math.inf, note="note"),
    ],
)
def test_plain_data_restores_it(verdict: ModelVerdict) -> None:
    assert from_plain(ModelVerdict, to_plain(verdict)) == verdict
