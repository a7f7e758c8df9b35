"""Results in a line, as an interpreter shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from qglow.core.printable import printable
from qglow.core.types import TensorType

_LONGEST = 60
_NAMED = 3


def brief(name: str) -> str:
    """A name of a model: printable, and its end where it is long."""
    shown = printable(name)
    return shown if len(shown) <= _LONGEST else "…" + shown[1 - _LONGEST :]


def listed(parts: Iterable[str], most: int = _NAMED) -> str:
    """The first parts, and how many more there are."""
    known = list(parts)
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(known[:most]) + more


def counted(number: int, noun: str) -> str:
    """A number with its noun: one sample, 12 samples."""
    return f"one {noun}" if number == 1 else f"{number} {noun}s"


def interface(inputs: Mapping[str, TensorType], outputs: Mapping[str, TensorType]) -> str:
    """Names and shapes of inputs and outputs, without parameters of integers."""
    return f"{_side(inputs)} -> {_side(outputs)}"


def _side(kinds: Mapping[str, TensorType]) -> str:
    return listed(f"{brief(name)} {kind.naming('')}" for name, kind in kinds.items())


def near(name: str, known: Iterable[str]) -> str:
    """End of a message on a name that is not known: the one that was meant, if it can be told."""
    found = get_close_matches(name, list(known), 1)
    return f"; did you mean '{brief(found[0])}'?" if found else ""
