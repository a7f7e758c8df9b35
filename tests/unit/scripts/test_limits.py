"""The table of products beside the read bandwidth and the int8 peak."""

from __future__ import annotations

import time

import pytest

from qglow.targets.native.target import NativeTarget
from qglow.targets.registry import select_target
from scripts.benchmarks.frame import run
from scripts.benchmarks.measurements import limits
from scripts.benchmarks.reading import reader


def test_shares_are_of_the_reader_and_of_the_peak() -> None:
    cells = limits.row(("int8", "1000", "16", "1"), 2.0, 0.5, 8_000_000, 16 * 10**6, 20.0)
    assert cells == ("int8", "1000", "16", "1", "2.000", "8.0", "4.0", "25%", "8", "40%")


def test_every_form_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(limits.BENCHMARK, ["--shapes", "1x64", "2x64", "--threads", "1", "2", "--alternations", "2"]) == 0
    )
    lines = capsys.readouterr().out.strip().splitlines()
    assert len([line for line in lines if line.startswith(("| int8", "| `int"))]) == 3 * len(limits.FORMS)


def test_a_reader_takes_longer_for_more() -> None:
    target = select_target()
    assert isinstance(target, NativeTarget)
    calls = [reader(target.machine, size) for size in (1 << 12, 1 << 26)]
    clock = time.thread_time_ns
    times = []
    for call in calls:
        call()
        start = clock()
        call()
        times.append(clock() - start)
    assert times[1] > 10 * times[0]
