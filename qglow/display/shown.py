"""Results that notebooks show."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from qglow.display.blocks import Section
from qglow.display.fragment import to_fragment
from qglow.display.plain import to_plain


class Shown(ABC):
    """A result with a short form in notebooks, and a form that JSON has."""

    __slots__ = ()

    @abstractmethod
    def _sections(self) -> tuple[Section, ...]:
        """Return what people see."""

    def _repr_html_(self) -> str:
        return to_fragment(self._sections())

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON has it: mappings, lists, text, numbers; infinities and NaN are text."""
        plain: dict[str, Any] = to_plain(self)
        return plain
