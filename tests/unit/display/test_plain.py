"""Results as plain data, and back."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from qglow.display.plain import from_plain


@dataclass(frozen=True)
class Figures:
    name: str
    more: tuple[int, ...] = (1,)


def test_a_younger_field_has_its_default_in_older_files() -> None:
    assert from_plain(Figures, {"name": "x"}) == Figures("x")
    assert from_plain(Figures, {"name": "x", "more": [2, 3]}) == Figures("x", (2, 3))


def test_a_field_without_a_default_has_to_be_there() -> None:
    with pytest.raises(KeyError):
        from_plain(Figures, {"more": [2]})
