"""Baselines: verdicts, the file, and what CI is told."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from qglow.baseline.changes import summary_sections
from qglow.baseline.entries import Entry, Measured, Samples
from qglow.baseline.file import load_baseline, update_baseline
from qglow.baseline.junit import to_junit
from qglow.baseline.sections import baseline_section
from qglow.baseline.verdicts import (
    BaselineReport,
    Outcome,
    Verdict,
    failure,
    judge,
    measure,
)
from qglow.core.errors import InputFileError, RegressionError, UsageError
from qglow.display.document import Document
from qglow.display.markdown import to_markdown
from qglow.report.comparison_result import FLOAT, INT8, Accuracy, Agreement, Comparison, Pairing
from qglow.report.metrics import ErrorSummary
from qglow.report.significance import Flips
from qglow.report.task_metric import MetricFigures

BEFORE = Measured(90.0, 91.0, 20, 2, 1, 1000)
ENTRY = Entry("m", Samples("t.npz"), model=Path("m.onnx"), tolerance=0.5, measured=BEFORE)
ERRORS = ErrorSummary(10, 0.5, 0.1, 0.1, 0.1, 0.1, 31.5, 0.999, 0)


def outcome(**changes: float) -> Outcome:
    return judge(ENTRY, replace(BEFORE, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, Verdict.PASS),
        ({"value": 89.5}, Verdict.PASS),
        ({"value": 90.5}, Verdict.PASS),
        ({"value": 89.49}, Verdict.REGRESSION),
        ({"value": 90.6}, Verdict.IMPROVEMENT),
        ({"int8_nodes": 19}, Verdict.REGRESSION),
        ({"float_nodes": 3}, Verdict.REGRESSION),
        ({"islands": 2}, Verdict.REGRESSION),
        ({"bytes": 1001}, Verdict.REGRESSION),
        ({"int8_nodes": 21, "float_nodes": 1}, Verdict.IMPROVEMENT),
        ({"bytes": 999, "value": 89.0}, Verdict.REGRESSION),
    ],
)
def test_verdicts(changes: dict[str, float], verdict: Verdict) -> None:
    assert outcome(**changes).verdict is verdict


def test_reasons_name_every_figure_that_got_worse() -> None:
    assert outcome(value=88.0, bytes=1200).reason == "top1 90 -> 88 (tolerance 0.5); bytes 1000 -> 1200"


def test_a_fall_within_noise_says_so_and_fails_all_the_same() -> None:
    before = replace(BEFORE, labelled=500, lost=4, won=3)
    entry = replace(ENTRY, measured=before)
    slight = judge(entry, replace(before, value=89.2, lost=8))
    assert slight.verdict is Verdict.REGRESSION
    # 8 + 3 flips against 3 + 4: twice the chance of at most 7 heads in 18 throws, 0.2403 each side.
    assert slight.reason == "top1 90 -> 89.2 (tolerance 0.5; within noise, p up to 0.48 on 500 samples)"
    # 24 + 3 against 3 + 4: at most 7 heads in 34 throws, 2 * 7055732 / 2^34.
    clear = judge(entry, replace(before, value=86.0, lost=24))
    assert clear.reason == "top1 90 -> 86 (tolerance 0.5; p at most 0.00082 on 500 samples)"
    assert judge(entry, replace(before, value=86.0, labelled=400)).reason == (
        "top1 90 -> 86 (tolerance 0.5; 500 labelled samples in the baseline, 400 now)"
    )
    assert judge(replace(entry, measured=BEFORE), replace(before, value=86.0)).reason.endswith(
        "(tolerance 0.5)"
    )


def test_a_float_model_that_moved_is_no_noise() -> None:
    before = replace(BEFORE, labelled=60, lost=1, won=0)
    entry = replace(ENTRY, measured=before)
    collapsed = judge(entry, replace(before, value=5.0, reference=6.6667))
    assert collapsed.verdict is Verdict.REGRESSION
    assert collapsed.reason == (
        "top1 90 -> 5 (tolerance 0.5; the float model's own figure went from 91 to 6.6667, "
        "so the model or the data changed)"
    )
    # Less than the tolerance may come from another processor, but flips do not tell the change any more.
    slight = judge(entry, replace(before, value=88.0, reference=90.8))
    assert slight.reason == (
        "top1 90 -> 88 (tolerance 0.5; the float model's own figure went from 91 to 90.8)"
    )
    other = judge(entry, replace(before, value=88.0, reference=math.nan))
    assert other.reason.endswith("went from 91 to nan, so the model or the data changed)")


def test_another_number_of_samples_is_a_warning_and_refused_where_figures_are_required() -> None:
    labelled = replace(ENTRY, measured=replace(BEFORE, labelled=60, lost=1, won=0))
    shrunk = judge(labelled, replace(BEFORE, value=100.0, reference=100.0, labelled=5, lost=0, won=0))
    assert shrunk.verdict is Verdict.IMPROVEMENT and shrunk.warnings == (
        "60 labelled samples in the baseline, 5 now: figures over other data do not compare models",
    )
    assert "60 labelled samples in the baseline, 5 now" in shrunk.reason
    grown = judge(
        replace(ENTRY, metric="sqnr", measured=replace(BEFORE, samples=8)), replace(BEFORE, samples=9)
    )
    assert grown.verdict is Verdict.PASS and grown.other_data == "8 samples in the baseline, 9 now"
    report = BaselineReport(Path("b.yaml"), (shrunk, outcome(), grown))
    assert report.over_other_data == (shrunk, grown) and len(report.warnings) == 2
    report.require()
    with pytest.raises(
        RegressionError,
        match=r"^b.yaml has figures over other data; an update replaces them: m: 60 labelled samples in the "
        r"baseline, 5 now; m: 8 samples in the baseline, 9 now$",
    ):
        report.require(baseline=True)
    text = to_markdown(Document("", summary_sections(report)))
    assert "## Warnings" in text and "| m | labelled samples | 60 | 5 | -55 |" in text
    # Files of older versions do not say how many samples there were.
    assert judge(ENTRY, replace(BEFORE, samples=9)).warnings == ()
    assert failure(labelled, "unsupported").other_data is None


def test_without_figures_an_entry_is_new() -> None:
    assert judge(replace(ENTRY, measured=None), BEFORE).verdict is Verdict.NEW


def test_expected_failures_do_not_fail_and_say_when_they_are_over() -> None:
    expected = replace(ENTRY, expected_failure="known loss of the head")
    failed = judge(expected, replace(BEFORE, value=80.0))
    assert failed.verdict is Verdict.EXPECTED_FAILURE and "known loss of the head" in failed.reason
    assert failure(expected, "unsupported").verdict is Verdict.EXPECTED_FAILURE
    over = judge(expected, BEFORE)
    assert over.verdict is Verdict.IMPROVEMENT and "take expected_failure out" in over.reason


def test_only_regressions_raise_and_with_exit_code_5() -> None:
    BaselineReport(Path("b.yaml"), (outcome(), outcome(value=95.0))).require()
    with pytest.raises(RegressionError, match="1 regression against b.yaml: m: top1 90 -> 80") as caught:
        BaselineReport(Path("b.yaml"), (outcome(), outcome(value=80.0))).require()
    assert caught.value.exit_code == 5


def test_entries_without_figures_fail_where_figures_are_required() -> None:
    new = judge(replace(ENTRY, measured=None), BEFORE)
    BaselineReport(Path("b.yaml"), (new, outcome())).require()
    BaselineReport(Path("b.yaml"), (outcome(),)).require(baseline=True)
    with pytest.raises(
        RegressionError, match=r"^b.yaml has no figures of: m: no figures in the baseline yet"
    ):
        BaselineReport(Path("b.yaml"), (new, outcome())).require(baseline=True)
    with pytest.raises(RegressionError, match=r"^1 regression against b.yaml: m: .*; b.yaml has no figures"):
        BaselineReport(Path("b.yaml"), (new, outcome(value=80.0))).require(baseline=True)


def test_a_figure_that_is_no_number_is_a_regression() -> None:
    assert outcome(value=math.nan).verdict is Verdict.REGRESSION


@pytest.mark.parametrize("value", [".nan", ".inf", "-.inf", "'nan'", "1e999", "9" * 400])
@pytest.mark.parametrize("key", ["tolerance", "value"])
def test_limits_in_the_file_are_finite(key: str, value: str, tmp_path: Path) -> None:
    path = tmp_path / "b.yaml"
    figures = {"value": "90.0", "int8_nodes": "20", "float_nodes": "2", "islands": "1", "bytes": "10"}
    entry = {"tolerance": "0.5"}
    (entry if key in entry else figures)[key] = value
    lines = [f"    {name}: {text}" for name, text in entry.items()]
    lines += ["    measured:", *(f"      {name}: {text}" for name, text in figures.items())]
    path.write_text("models:\n  m:\n    profile: p.yaml\n    data: t.npz\n" + "\n".join(lines) + "\n")
    with pytest.raises(InputFileError, match=rf"{key}: needs a number"):
        load_baseline(path)


def test_a_model_that_cannot_be_made_is_a_regression() -> None:
    assert failure(ENTRY, "operator X").verdict is Verdict.REGRESSION


def comparison(labelled: bool) -> Comparison:
    agreement = Agreement(10, 0.9, 1.0) if labelled else None
    pairing = Pairing(INT8, FLOAT, {"y": ERRORS}, ERRORS, agreement, Flips(10, 2, 1) if labelled else None)
    accuracy = {INT8: Accuracy(10, 0.8, 0.9), FLOAT: Accuracy(10, 0.81, 0.91)} if labelled else {}
    return Comparison(10, (pairing,), accuracy, MetricFigures("f", {INT8: 7.25, FLOAT: 7.5}))


class Counts:
    """What `measure` reads of a quantization report."""

    quantized = ("a", "b")
    float_nodes = ("c",)
    islands = ("i",)
    weight_bytes_after = 77


@pytest.mark.parametrize(
    ("metric", "value", "reference"),
    [
        ("top1", 80.0, 81.0),
        ("top5", 90.0, 91.0),
        ("agreement", 7.25, 7.5),
        ("sqnr", 31.5, None),
        ("cosine", 0.999, None),
        ("miou", 7.25, 7.5),
        ("my.metrics:f", 7.25, 7.5),
    ],
)
def test_figures_of_every_metric(metric: str, value: float, reference: float | None) -> None:
    found = measure(replace(ENTRY, metric=metric), comparison(True), Counts())  # type: ignore[arg-type]
    flips = (10, 2, 1) if metric == "top1" else (None, None, None)
    samples = None if metric == "top1" else 10
    assert found == Measured(value, reference, 2, 1, 1, 77, *flips, samples=samples)
    assert found.flips == (Flips(10, 2, 1) if metric == "top1" else None)


def test_a_metric_that_needs_labels_says_so() -> None:
    with pytest.raises(UsageError, match="metric top1 needs labels"):
        measure(ENTRY, comparison(False), Counts())  # type: ignore[arg-type]


TEXT = """# ours
models:
  first:  # the small one
    model: a.onnx
    calibration: calib.npz
    calibration_samples: 10
    data: test.npz
    metric: sqnr
    # about the second

  second:
    profile: p.yaml
    select: "::2"
    data: photos
    tolerance: 1
    expected_failure: a reason"""


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    path = tmp_path / "accuracy.yaml"
    path.write_text(TEXT)
    return path


def test_entries_are_read(baseline: Path) -> None:
    first, second = load_baseline(baseline)
    assert first == Entry(
        "first",
        Samples("test.npz"),
        model=Path("a.onnx"),
        calibration=Samples("calib.npz", samples=10),
        metric="sqnr",
    )
    assert second == Entry(
        "second",
        Samples("photos", "::2"),
        profile=Path("p.yaml"),
        tolerance=1.0,
        expected_failure="a reason",
    )


def test_update_writes_figures_and_leaves_everything_else(baseline: Path) -> None:
    entries = load_baseline(baseline)
    update_baseline(baseline, [judge(entries[1], BEFORE)])
    update_baseline(baseline, [judge(entry, replace(BEFORE, value=91.5)) for entry in entries])
    text = baseline.read_text()
    kept = [line for line in text.splitlines() if line in TEXT.splitlines()]
    assert kept == TEXT.splitlines()
    assert [entry.measured for entry in load_baseline(baseline)] == [replace(BEFORE, value=91.5)] * 2
    update_baseline(baseline, [judge(entry, replace(BEFORE, value=91.5)) for entry in entries])
    assert baseline.read_text() == text
    counted = replace(BEFORE, labelled=500, lost=4, won=0, samples=500)
    update_baseline(baseline, [judge(entry, counted) for entry in entries])
    assert [entry.measured for entry in load_baseline(baseline)] == [counted] * 2


@pytest.mark.parametrize(
    "text",
    [
        "models: {m: {model: a.onnx, calibration: c.npz, data: t.npz}, n: {profile: p, data: t.npz,}}\n",
        "models:\n  m: {model: a.onnx,  # the first\n"
        "      calibration: c.npz, data: t.npz  # its data\n     }\n"
        "  n:\n    profile: p\n    data: t.npz  # the second\n",
        "models:\n  {m: {measured: {value: 1.0, int8_nodes: 1, float_nodes: 1, islands: 1, bytes: 1},"
        " profile: p, data: t.npz},\n   n: {profile: p, data: t.npz}}",
    ],
    ids=["braces", "mixed", "measured"],
)
def test_update_edits_entries_in_braces(tmp_path: Path, text: str) -> None:
    path = tmp_path / "b.yaml"
    path.write_text(text)
    before = load_baseline(path)
    for value in (91.5, 92.5):
        now = replace(BEFORE, value=value, kernels="generic, c")
        update_baseline(path, [judge(entry, now) for entry in before])
        entries = load_baseline(path)
        assert [entry.measured for entry in entries] == [now] * 2
        assert [replace(entry, measured=None) for entry in entries] == [
            replace(entry, measured=None) for entry in before
        ]
    comments = [line.split("#")[1] for line in text.splitlines() if "#" in line]
    assert all(comment in path.read_text() for comment in comments)


def test_update_refuses_what_it_cannot_edit(tmp_path: Path) -> None:
    path = tmp_path / "b.yaml"
    text = "models:\n  m: &same {model: a.onnx, calibration: c.npz, data: t.npz}\n  n: *same\n"
    path.write_text(text)
    entries = load_baseline(path)
    with pytest.raises(InputFileError, match="cannot update the baseline"):
        update_baseline(path, [judge(entry, replace(BEFORE, value=i)) for i, entry in enumerate(entries)])
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "one key, models"),
        ("models: {}", "one key, models"),
        ("model: {}", "one key, models"),
        ("models: {m: {dat: t.npz}}", "'models.m.dat'; did you mean 'models.m.data'?"),
        ("models: {m: {data: t.npz, model: a}}", "give one of calibration, profile and quantized, not none"),
        ("models: {m: {calibration: c, model: a}}", "data names what it is evaluated on"),
        ("models: {m: {data: t, calibration: c}}", "calibration needs the model"),
        ("models: {m: {data: t, quantized: q, model: a}}", "knows its model"),
        ("models: {m: {data: t, profile: p, metric: top2}}", "did you mean 'top"),
        ("models: {m: {data: t, profile: p, metric: a.b:f}}", "say by how much metric a.b:f may get worse"),
        ("models: {m: {data: t, profile: p, measured: {value: 1}}}", "int8_nodes is missing"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "b.yaml"
    path.write_text(text)
    with pytest.raises(InputFileError) as caught:
        load_baseline(path)
    assert message in str(caught.value) and str(path) in str(caught.value)


def report() -> BaselineReport:
    expected = replace(ENTRY, name="known <b>", expected_failure="why")
    return BaselineReport(
        Path("accuracy.yaml"), (outcome(), outcome(value=80.0), failure(expected, "operator | X"))
    )


def test_junit_has_a_case_an_entry() -> None:
    suite = ET.fromstring(to_junit(report())).find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    assert [case.get("name") for case in suite.findall("testcase")] == ["m", "m", "known <b>"]
    failed = suite.find("testcase/failure")
    assert failed is not None and "top1 90 -> 80" in str(failed.get("message"))


def test_junit_fails_what_a_required_baseline_refuses() -> None:
    """What a CI system shows agrees with the exit code."""
    fewer = judge(replace(ENTRY, measured=replace(BEFORE, samples=60)), replace(BEFORE, samples=5))
    new = judge(replace(ENTRY, measured=None), BEFORE)
    found = BaselineReport(Path("accuracy.yaml"), (outcome(), fewer, new))
    for baseline, failures in ((False, []), (True, ["60 samples in the baseline, 5 now", "New"])):
        document = ET.fromstring(to_junit(found, baseline))
        told = [str(failed.get("message")) for failed in document.iter("failure")]
        assert len(told) == len(failures) and all(map(str.__contains__, told, failures))
        assert sum(outcome.fails(baseline) for outcome in found.outcomes) == len(failures)


def test_markdown_is_a_table_with_verdicts() -> None:
    text = to_markdown(Document("qglow check", (baseline_section(report()),)))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 5 and len({row.replace("\\|", "").count("|") for row in rows}) == 1
    assert "| m | Regression | top1 | 90 | 80 | 91 |  |  | 20 |" in text and "known \\<b\\>" in text
    assert "1 Pass, 1 Regression, 1 Expected-failure." in text


def test_a_decoder_that_is_built_in_needs_no_tolerance(tmp_path: Path) -> None:
    path = tmp_path / "accuracy.yaml"
    path.write_text("models: {m: {data: t, profile: p, metric: 'exact_match:ctc_last_classes_first'}}")
    [entry] = load_baseline(path)
    assert entry.allowed == 0.5
    path.write_text("models: {m: {data: t, profile: p, metric: 'exact_match:mine:decode'}}")
    with pytest.raises(InputFileError, match="say by how much metric exact_match:mine:decode may get worse"):
        load_baseline(path)


@pytest.mark.parametrize(("now", "verdict"), [(4.0, Verdict.IMPROVEMENT), (4.4, Verdict.REGRESSION)])
def test_a_metric_that_is_better_the_lower_is_judged_so(now: float, verdict: Verdict) -> None:
    before = Measured(4.2, 4.1, 2, 1, 1, 77)
    entry = replace(ENTRY, metric="perplexity", tolerance=None, measured=before)
    assert judge(entry, replace(before, value=now)).verdict is verdict
