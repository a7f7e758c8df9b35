"""Request for programs that take less memory than usual, at the cost of time."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Thrift:
    """Orders of nodes are searched; chains of images go in strips until `most` bytes live at one time.

    most: None for no strips. done: phrases that say which chains went in strips, filled by the lowering.
    """

    most: int | None = None
    done: list[str] = field(default_factory=list)
