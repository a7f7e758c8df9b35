"""The outcomes of a baseline as JUnit XML, which CI systems show as tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qglow.baseline.verdicts import BaselineReport, Outcome, Verdict
from qglow.core.printable import printable

if TYPE_CHECKING:
    from junitparser import TestCase


def to_junit(report: BaselineReport) -> str:
    """One test case an entry: a regression has failed, an expected failure was skipped."""
    from junitparser import JUnitXml, TestSuite

    suite = TestSuite("qglow check")
    for outcome in report.outcomes:
        suite.add_testcase(_case(outcome))
    document = JUnitXml("qglow check")
    document.add_testsuite(suite)
    # The library annotates most of itself, but not these two.
    document.update_statistics()  # type: ignore[no-untyped-call]
    text: bytes = document.tostring()  # type: ignore[no-untyped-call]
    return text.decode() + "\n"


def _case(outcome: Outcome) -> TestCase:
    from junitparser import Failure, Skipped, TestCase

    case = TestCase(printable(outcome.entry.name), classname="accuracy")
    message = printable(f"{outcome.verdict.value}: {outcome.reason}")
    if outcome.verdict is Verdict.REGRESSION:
        case.result = [Failure(message, outcome.verdict.value)]
    elif outcome.verdict is Verdict.EXPECTED_FAILURE:
        case.result = [Skipped(message)]
    else:
        case.system_out = message
    return case
