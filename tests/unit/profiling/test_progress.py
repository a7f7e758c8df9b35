"""Progress output: silent, plain lines, or a bar."""

from __future__ import annotations

import io

import pytest

from qglow.profiling import progress as module
from qglow.profiling.progress import counts, progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_nothing_is_written_where_nobody_watches() -> None:
    stream = io.StringIO()
    with progress("profile", 3, stream=stream) as advance:
        advance(3)
    assert stream.getvalue() == ""


def test_plain_lines_hold_rate_and_remaining_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    stream = io.StringIO()
    with progress("profile", 80, plain=True, stream=stream) as advance:
        now = 2.0
        advance(10)
        now = 10.0
        advance(10)
        now = 12.0
        advance(40)
        now = 20.0
        advance(20)
    assert stream.getvalue().splitlines() == [
        "profile: 20/80 samples, 2.0/s, 30 s remaining",
        "profile: 80/80 samples, 4.0/s",
    ]


@pytest.mark.parametrize("total", [4, None])
def test_a_terminal_gets_a_bar(total: int | None) -> None:
    stream = Terminal()
    with progress("profile", total, unit="images", stream=stream) as advance:
        advance(4)
    assert "profile" in stream.getvalue() and "images" in stream.getvalue()


def test_counts_leave_out_what_is_unknown() -> None:
    assert counts(3, None, "samples", None) == "3 samples"
    assert counts(3, 9, "samples", 1.25) == "3/9 samples, 1.2/s"
