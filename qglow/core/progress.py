"""Progress of long work, told while it runs."""

from __future__ import annotations

from collections.abc import Callable

Advance = Callable[[int], None]
"""Is called with the number of steps done since the last call."""

Progress = Callable[[int | None], Advance]
"""Given the number of steps (None if unknown), returns what is told how many more are done."""

Phases = Callable[[str], Progress]
"""Given what is done now, gives what other functions take as `progress`."""


def start(progress: Progress | None, total: int | None) -> Advance:
    """The function to tell about steps done, which does nothing without `progress`."""
    return progress(total) if progress is not None else lambda done: None
