"""Functions of one variable: their settings, float32 meaning and float64 reference."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from qglow.core.types import Array
from qglow.numerics.scalar.algebra import Real


@dataclass(frozen=True)
class ScalarFunction(ABC):
    """Base of all functions of one variable; subclasses are frozen dataclasses whose fields are settings.

    The operator of the graph and the instruction are subclasses of the function, so that settings, meaning
    and reference are declared once. `opcode` is the instruction's name, which `declare` gives: a
    function without one has no instruction, and its operator needs a lowering of its own. `limits` are the
    least and the largest result of any x.
    """

    opcode: ClassVar[str] = ""
    limits: ClassVar[tuple[float, float]] = (-math.inf, math.inf)

    @abstractmethod
    def real(self, x: Real) -> Real:
        """The float32 meaning: the same operations in every evaluator."""

    def reference(self, x: Array) -> Array:
        """The float64 meaning, for int8 tables (rule 7). Raises NotImplementedError if there is none."""
        raise NotImplementedError(f"{self.opcode} has no table")

    def fault(self) -> str | None:
        """Fault of the settings in words, or None."""
        return None

    def settings(self) -> tuple[Any, ...]:
        """The fields in order."""
        return tuple(getattr(self, field.name) for field in dataclasses.fields(self))


F = TypeVar("F", bound=type[ScalarFunction])

SCALAR_FUNCTIONS: dict[str, type[ScalarFunction]] = {}
"""Every declared function by its opcode."""


def declare(cls: F) -> F:
    """Class decorator: give a function its opcode, the class's name in lower case, and list it."""
    cls.opcode = cls.__name__.lower()
    if cls.opcode in SCALAR_FUNCTIONS:
        raise ValueError(f"function {cls.opcode} is declared twice")
    SCALAR_FUNCTIONS[cls.opcode] = cls
    return cls
