"""Long work that the user may end early, with what is done until then as its result."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Interrupted = Callable[[str], None]
"""Is told what was being done when the user interrupted."""


@dataclass
class Interruption:
    """Whether the user has interrupted work that has a result at every moment.

    told: is called where that happens; None: KeyboardInterrupt goes on, as it does anywhere else.
    """

    told: Interrupted | None = None
    happened: bool = field(default=False, init=False)

    @contextlib.contextmanager
    def during(self, what: str) -> Iterator[None]:
        """End the body, and no more than that, where the user interrupts it."""
        try:
            yield
        except KeyboardInterrupt:
            if self.told is None:
                raise
            self.happened = True
            self.told(what)
