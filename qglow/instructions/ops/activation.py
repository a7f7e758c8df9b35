"""Transcendental functions of one variable, float32, by the polynomials in numerics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from qglow.core.types import Array
from qglow.instructions.operation import Arrays, Operand, Operation, Types, out, read, register
from qglow.instructions.ops.rules import require_float, require_shape
from qglow.numerics.polynomials import sigmoid, tanh


@dataclass(frozen=True)
class _Function(Operation):
    """dest = function(src), float32."""

    signature: ClassVar[tuple[Operand, ...]] = (out(strided=True), read(strided=True))
    in_place: ClassVar[tuple[tuple[str, str], ...]] = (("dest", "src"),)
    data_parallel: ClassVar[bool] = True
    function: ClassVar[Callable[[Array], Array]]

    def verify(self, types: Types) -> None:
        """Floats of one shape."""
        require_float(types, "dest", "src")
        require_shape(types, "src", types["dest"].shape, "that of dest")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """numerics.polynomials."""
        arrays["dest"][...] = type(self).function(arrays["src"])


@register
@dataclass(frozen=True)
class Sigmoid(_Function):
    """dest = 1 / (1 + e^-src)."""

    opcode: ClassVar[str] = "sigmoid"
    function: ClassVar[Callable[[Array], Array]] = staticmethod(sigmoid)


@register
@dataclass(frozen=True)
class Tanh(_Function):
    """dest = tanh(src)."""

    opcode: ClassVar[str] = "tanh"
    function: ClassVar[Callable[[Array], Array]] = staticmethod(tanh)
