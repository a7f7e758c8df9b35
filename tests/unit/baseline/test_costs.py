"""Limits of latency, sizes and memory in a baseline. No test reads a clock: turns are given."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qglow.baseline import costs as costs_module
from qglow.baseline.changes import summary_sections
from qglow.baseline.check import LAYER_SAMPLES, check_entries
from qglow.baseline.costs import MORE_TURNS, TURNS, Costs, RivalLatency, judge_costs
from qglow.baseline.entries import Entry, Measured, Samples
from qglow.baseline.file import load_baseline, update_baseline
from qglow.baseline.junit import to_junit
from qglow.baseline.limits import EntryLimits, LatencyLimits
from qglow.baseline.verdicts import BaselineReport, Verdict, judge
from qglow.core.errors import InputFileError, UsageError
from qglow.display.document import Document
from qglow.display.markdown import to_markdown
from qglow.report.bench import BenchResult, RatioInterval, result_of_turns
from qglow.report.latencies import QGLOW_INT8, RIVALS
from qglow.toolchain import CompileOptions
from tests.zoo import REPOSITORY

BEFORE = Measured(90.0, 91.0, 20, 2, 1, 1000)
ENTRY = Entry("m", Samples("t.npz"), model=Path("m.onnx"), tolerance=0.5, measured=BEFORE)


def limited(before: Measured | None = BEFORE, **limits: object) -> Entry:
    latency = {key: limits.pop(key) for key in ("float32", "int8", "baseline") if key in limits}
    found = EntryLimits(LatencyLimits(**latency), **limits)  # type: ignore[arg-type]
    return replace(ENTRY, measured=before, limits=found)


def costs(low: float, median: float, high: float, kernels: str = "k", kind: str = "float32") -> Costs:
    return Costs(kernels, {kind: RivalLatency(1.0, 1.0 / median, RatioInterval(median, low, high, 50))})


@pytest.mark.parametrize(
    ("interval", "verdict", "warned"),
    [
        ((0.7, 0.75, 0.8), Verdict.PASS, False),
        ((0.75, 0.85, 0.9), Verdict.PASS, True),
        ((0.79, 2.0, 9.0), Verdict.PASS, True),
        ((0.81, 0.85, 0.9), Verdict.REGRESSION, False),
        ((float("nan"), 0.5, 0.9), Verdict.REGRESSION, False),
    ],
)
def test_only_an_interval_that_lies_above_the_limit_fails(
    interval: tuple[float, float, float], verdict: Verdict, warned: bool
) -> None:
    found = judge(limited(float32=0.8), BEFORE, costs(*interval))
    assert found.verdict is verdict and bool(found.warnings) == warned
    for said in (*found.warnings, *([found.reason] if verdict is Verdict.REGRESSION else [])):
        assert "of onnxruntime float32's (99 % interval" in said and "limit of 0.8" in said


def test_a_model_without_figures_must_keep_its_limits_all_the_same() -> None:
    assert judge(limited(None, float32=0.8), BEFORE, costs(0.5, 0.5, 0.6)).verdict is Verdict.NEW
    assert judge(limited(None, float32=0.8), BEFORE, costs(0.9, 1.0, 1.1)).verdict is Verdict.REGRESSION


def test_the_baseline_limits_the_growth_of_a_ratio_of_the_same_kernels() -> None:
    before = replace(BEFORE, ratio_float32=0.5, kernels="k")
    entry = limited(before, baseline=1.2)
    assert judge(entry, before, costs(0.55, 0.58, 0.6)).verdict is Verdict.PASS
    slow = judge(entry, before, costs(0.61, 0.62, 0.63))
    assert slow.verdict is Verdict.REGRESSION
    assert slow.reason.endswith("over the limit of 0.6 (1.2 times the baseline's 0.5)")
    other = judge(entry, before, costs(0.9, 0.9, 0.9, kernels="other"))
    assert other.verdict is Verdict.PASS and "measured with kernels for k; these are for other" in str(
        other.warnings
    )
    unknown = judge(limited(baseline=1.2), BEFORE, costs(0.9, 0.9, 0.9))
    assert unknown.warnings == ("the baseline has no latency yet; an update writes it",)


@pytest.mark.parametrize(
    ("limit", "told"), [("bytes", "constants"), ("artefact_bytes", "artefact"), ("arena_bytes", "arena")]
)
def test_sizes_and_memory_have_limits(limit: str, told: str) -> None:
    now = replace(BEFORE, **{limit: 2000})
    entry = limited(now, **{limit: 2000})
    assert judge_costs(entry, now, None).broken == ()
    assert judge(entry, now).verdict is Verdict.PASS
    entry = limited(now, **{limit: 1999})
    assert judge(entry, now).reason == f"{told} 2.00 kB, over the limit of 2.00 kB"


def read(folder: Path, *lines: str) -> Entry:
    path = folder / "b.yaml"
    text = "\n".join(f"    {line}" for line in ("profile: p.yaml", "data: t.npz", *lines))
    path.write_text(f"models:\n  m:\n{text}\n")
    [entry] = load_baseline(path)
    return entry


@pytest.mark.parametrize(
    ("lines", "limits"),
    [
        ((), EntryLimits()),
        (("max_latency_ratio: 0.8",), EntryLimits(LatencyLimits(float32=0.8))),
        (
            ("max_latency_ratio: {int8: 1, baseline: 1.2}",),
            EntryLimits(LatencyLimits(int8=1.0, baseline=1.2)),
        ),
        (("max_bytes: 100", "max_artefact_bytes: 2K"), EntryLimits(bytes=100, artefact_bytes=2048)),
        (("max_arena_bytes: 1.5M",), EntryLimits(arena_bytes=1536 * 1024)),
    ],
)
def test_limits_are_read(lines: Sequence[str], limits: EntryLimits, tmp_path: Path) -> None:
    assert read(tmp_path, *lines).limits == limits


@pytest.mark.parametrize(
    ("line", "message"),
    [
        *(
            (f"max_latency_ratio: {x}", "max_latency_ratio: needs a number")
            for x in (".nan", ".inf", "1e999")
        ),
        ("max_latency_ratio: {int8: .nan}", "models.m.max_latency_ratio: int8: needs a number"),
        ("max_latency_ratio: {baseline: -.inf}", "baseline: needs a number"),
        ("max_latency_ratio: 0", "needs a number above 0"),
        ("max_latency_ratio: -1", "needs a number above 0"),
        ("max_latency_ratio: {}", "holds at least one of float32, int8 and baseline"),
        ("max_latency_ratio: {baseline: 0.9}", "needs at least 1, which allows no growth"),
        ("max_latency_ratio: {flot32: 1}", "did you mean 'float32'"),
        ("max_latency_ratio: [1]", "needs a number"),
        ("max_bytes: -1", "needs a whole number"),
        ("max_arena_bytes: .nan", "needs a whole number"),
        ("max_artefact_bytes: lots", "write 64K"),
    ],
)
def test_mistakes_in_limits_are_named(line: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputFileError) as caught:
        read(tmp_path, line)
    assert message in str(caught.value) and "models.m.max" in str(caught.value)


Ask = Callable[[int], Sequence[float]]


class Timed:
    """In place of measuring: ratios to onnxruntime by how many turns are asked for."""

    def __init__(self, ratios: Ask) -> None:
        self.ratios = ratios
        self.asked: list[tuple[int, tuple[str, ...], int | None]] = []

    def __call__(
        self, parts: object, options: CompileOptions, *, alternations: int, only: Collection[str]
    ) -> BenchResult:
        self.asked.append((alternations, tuple(sorted(only)), options.threads))
        paired = np.asarray(self.ratios(alternations), float)
        names = [QGLOW_INT8, *(name for name in RIVALS.values() if name in only)]
        turns = np.stack([paired, *(np.ones(alternations) for _ in names[1:])])
        return result_of_turns(dict.fromkeys(names, 1), turns)


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[BaselineReport, Timed]]:
    """Checks the example with more lines in its entry, timed as told."""
    for name in ("digits.onnx", "calib.npz", "test.npz"):
        shutil.copy(REPOSITORY / "calib_data" / name, tmp_path / name)

    def check(ratios: Ask, *lines: str, update: bool = False) -> tuple[BaselineReport, Timed]:
        path = tmp_path / "b.yaml"
        fixed = ("model: digits.onnx", "calibration: calib.npz", "data: test.npz", "samples: 40")
        if not update:
            path.write_text("models:\n  m:\n" + "".join(f"    {line}\n" for line in (*fixed, *lines)))
        timed = Timed(ratios)
        monkeypatch.setattr(costs_module, "measure_latencies", timed)
        report = check_entries(path, [], CompileOptions())
        update_baseline(path, report.outcomes)
        return report, timed

    return check


def steady(ratio: float) -> Ask:
    return lambda turns: [ratio] * turns


def test_what_keeps_its_limit_is_measured_once_on_one_thread(
    example: Callable[..., tuple[BaselineReport, Timed]],
) -> None:
    report, timed = example(steady(0.5), "max_latency_ratio: 0.8")
    assert timed.asked == [(TURNS, (RIVALS["float32"], QGLOW_INT8), 1)]
    [outcome] = report.outcomes
    assert outcome.verdict is Verdict.NEW and outcome.measured is not None
    assert (outcome.measured.ratio_float32, outcome.measured.ratio_int8) == (0.5, None)
    assert outcome.seconds is not None and outcome.seconds > 0.0


def test_what_seems_too_slow_is_measured_again_in_more_turns_which_count(
    example: Callable[..., tuple[BaselineReport, Timed]],
) -> None:
    report, timed = example(lambda turns: [2.0 if turns == TURNS else 0.5] * turns, "max_latency_ratio: 0.8")
    assert [turns for turns, *_ in timed.asked] == [TURNS, MORE_TURNS]
    assert not report.regressions and not report.warnings
    report, _ = example(steady(0.9), "max_latency_ratio: {float32: 2, int8: 0.8}")
    assert "latency 0.9 of onnxruntime int8's" in report.regressions[0].reason


def test_turns_that_differ_too_much_warn_and_do_not_fail(
    example: Callable[..., tuple[BaselineReport, Timed]],
) -> None:
    report, timed = example(lambda turns: [0.5, 2.0] * (turns // 2), "max_latency_ratio: 0.8")
    assert len(timed.asked) == 2 and not report.regressions
    assert "m: latency" in report.warnings[0] and "cannot be told" in report.warnings[0]


def test_growth_since_the_baseline_fails(example: Callable[..., tuple[BaselineReport, Timed]]) -> None:
    lines = ("max_latency_ratio: {baseline: 1.1}", "max_arena_bytes: 1M", "max_artefact_bytes: 10M")
    report, timed = example(steady(0.5), *lines)
    assert [turns for turns, *_ in timed.asked] == [TURNS, MORE_TURNS]
    [first] = report.outcomes
    assert first.measured is not None and first.costs is not None
    assert first.measured.kernels == first.costs.kernels
    assert 100 < (first.measured.arena_bytes or 0) < 100_000 < (first.measured.artefact_bytes or 0) + 90_000
    report, _ = example(steady(0.54), update=True)
    assert report.outcomes[0].verdict is Verdict.PASS
    # That became the baseline in turn.
    report, _ = example(steady(0.6), update=True)
    assert "times the baseline's 0.54" in report.regressions[0].reason


def test_a_processor_that_is_emulated_has_no_latency(
    example: Callable[..., tuple[BaselineReport, Timed]], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere:
        class description:
            name = "elsewhere"

        def refusal(self) -> str:
            return "not here"

    monkeypatch.setattr(costs_module, "find_or_select", lambda name: Elsewhere())
    with pytest.raises(UsageError, match="m: max_latency_ratio: elsewhere runs in an emulator here"):
        example(steady(1.0), "max_latency_ratio: 1")


def test_junit_carries_times_and_figures() -> None:
    latency = costs(0.7, 0.75, 0.9)
    slow = replace(judge(limited(float32=0.8), latency.added_to(BEFORE), latency), seconds=1.25)
    suite = ET.fromstring(to_junit(BaselineReport(Path("b.yaml"), (slow,)))).find("testsuite")
    assert suite is not None and suite.get("time") == "1.25"
    [case] = suite.findall("testcase")
    assert case.get("time") == "1.25" and "cannot be told" in str(case.findtext("system-err"))
    found = {str(p.get("name")): p.get("value") for p in case.findall("properties/property")}
    assert found["value"] == "90.0" and found["latency_ms"] == "1" and found["kernels"] == "k"
    assert found["ratio_float32"] == "0.75" and found["onnxruntime_float32_ms"] == "1.33333"
    assert (found["ratio_float32_low"], found["ratio_float32_high"]) == ("0.7", "0.9")


def test_markdown_says_what_has_changed_and_how_fast_it_is() -> None:
    before = replace(BEFORE, ratio_float32=0.5, kernels="k", arena_bytes=1000)
    latency = costs(0.7, 0.75, 0.9)
    now = replace(latency.added_to(replace(before, value=89.5)), arena_bytes=1500)
    unchanged = judge(replace(ENTRY, name="same"), BEFORE)
    report = BaselineReport(Path("b.yaml"), (judge(limited(before, float32=0.8), now, latency), unchanged))
    text = to_markdown(Document("qglow check", summary_sections(report)))
    assert "| m | top1 | 90 | 89.5 | -0.5 |" in text
    assert "| m | arena | 1.00 kB | 1.50 kB | +50.0 % |" in text
    assert "| m | latency / onnxruntime float32 | 0.5 | 0.75 | +50.0 % |" in text
    assert "| same |" not in text.split("Changes since the baseline")[1]
    assert "| m | k | 1.00 ms | onnxruntime float32 | 1.33 ms | 0.75 | 0.7 to 0.9 | 50 |" in text
    assert "## Warnings" in text and "cannot be told from the limit" in text
    text = to_markdown(Document("", summary_sections(BaselineReport(Path("b.yaml"), (unchanged,)))))
    assert "No figure has changed." in text and "Latency" not in text and "Warnings" not in text
    elsewhere = judge(limited(before), replace(now, kernels="other"))
    changed = to_markdown(Document("", summary_sections(BaselineReport(Path("b.yaml"), (elsewhere,)))))
    assert "latency /" not in changed
    noise = judge(limited(before, float32=9.0), now, costs(0.4, 0.75, 0.9))
    changed = to_markdown(Document("", summary_sections(BaselineReport(Path("b.yaml"), (noise,)))))
    assert "latency /" not in changed and "| m | arena |" in changed


def test_the_worst_layers_of_a_model_that_changed_are_shown(
    example: Callable[..., tuple[BaselineReport, Timed]], tmp_path: Path
) -> None:
    report, _ = example(steady(1.0))
    assert report.outcomes[0].layers is None
    report, _ = example(steady(1.0), update=True)
    assert report.outcomes[0].layers is None and not report.outcomes[0].has_changed
    path = tmp_path / "b.yaml"
    path.write_text(path.read_text().replace("bytes: 22536", "bytes: 22537"))
    report, _ = example(steady(1.0), update=True)
    layers = report.outcomes[0].layers
    assert layers is not None and layers.samples == LAYER_SAMPLES
    assert {"Conv", "Gemm"} <= {layer.operator for layer in layers.layers}
    assert not {"Reshape", "Flatten", "Transpose"} & {layer.operator for layer in layers.layers}
    text = to_markdown(Document("", summary_sections(report)))
    rows = [line for line in text.split("Worst layers")[1].splitlines() if line.startswith("| m |")]
    assert len(rows) == 5 and f"| {layers.ranked()[0].operator} |" in rows[0]
