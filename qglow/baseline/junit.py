"""The outcomes of a baseline as JUnit XML, which CI systems show as tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from qglow.baseline.verdicts import BaselineReport, Outcome, Verdict
from qglow.core.printable import printable

if TYPE_CHECKING:
    from junitparser import TestCase


def to_junit(report: BaselineReport, baseline: bool = False) -> str:
    """One test case an entry: a regression has failed, an expected failure was skipped.

    baseline: entries without figures, or with figures over another number of samples, have failed too.
    Each has the seconds that it took, and its figures as properties; what could not be told stands in its
    `system-err`.
    """
    from junitparser import JUnitXml, TestSuite

    suite = TestSuite("qglow check")
    for outcome in report.outcomes:
        suite.add_testcase(_case(outcome, baseline))
    document = JUnitXml("qglow check")
    document.add_testsuite(suite)
    # The library annotates most of itself, but not these two.
    document.update_statistics()  # type: ignore[no-untyped-call]
    text: bytes = document.tostring()  # type: ignore[no-untyped-call]
    return text.decode() + "\n"


def _case(outcome: Outcome, baseline: bool) -> TestCase:
    from junitparser import Failure, Properties, Property, Skipped, TestCase

    seconds = None if outcome.seconds is None else round(outcome.seconds, 3)
    case = TestCase(printable(outcome.entry.name), classname="accuracy", time=seconds)
    figures = list(_figures(outcome))
    if figures:
        # The library annotates most of itself, but not these.
        properties = Properties()  # type: ignore[no-untyped-call]
        for name, value in figures:
            properties.add_property(Property(name, value))
        case.append(properties)  # type: ignore[no-untyped-call]
    message = printable(f"{outcome.verdict.value}: {outcome.reason}")
    if outcome.fails(baseline):
        if outcome.other_data is not None and outcome.other_data not in message:
            message = f"{message}; {outcome.other_data}"
        case.result = [Failure(message, outcome.verdict.value)]
    elif outcome.verdict is Verdict.EXPECTED_FAILURE:
        case.result = [Skipped(message)]
    else:
        case.system_out = message
    if outcome.warnings:
        case.system_err = printable("; ".join(outcome.warnings))
    return case


def _figures(outcome: Outcome) -> Iterator[tuple[str, str]]:
    """Names and values of what was measured."""
    if outcome.measured is not None:
        yield "metric", printable(outcome.entry.metric)
        for name, value in asdict(outcome.measured).items():
            if value is not None:
                yield name, str(value)
    latencies = {} if outcome.costs is None else dict(outcome.costs.latencies)
    for latency in list(latencies.values())[:1]:
        yield "latency_ms", f"{latency.milliseconds:.6g}"
    for kind, latency in latencies.items():
        yield f"onnxruntime_{kind}_ms", f"{latency.rival_milliseconds:.6g}"
        yield f"ratio_{kind}_low", f"{latency.ratio.low:.4g}"
        yield f"ratio_{kind}_high", f"{latency.ratio.high:.4g}"
