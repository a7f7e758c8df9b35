"""Choices between operands: maximum, minimum, and by a condition.

Operands spread over dest along axes where they have extent 1. Elements are of any one type;
int8 and int16 ones with parameters other than dest's are rescaled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.types import Array, ElementType
from qglow.instructions.operation import Arrays, Operand, Operation, Types, out, read, register, require
from qglow.instructions.ops.rules import is_integers, parameters_of, require_broadcast, require_same_kind
from qglow.numerics.elementwise import max_int8, maximum, min_int8, minimum, where_int8


def _verify_choices(types: Types) -> None:
    kinds = [types[name] for name in ("dest", "lhs", "rhs")]
    quantized = [is_integers(kind) for kind in kinds]
    plain = not any(kind.is_quantized for kind in kinds)
    if plain:
        require_same_kind(types, "dest", "lhs", "rhs")
    require(plain or all(quantized), "some operands are quantized, and not all are integers with one scale")
    for name in ("lhs", "rhs"):
        require_broadcast(types, name, types["dest"].shape)


@dataclass(frozen=True)
class _Extremum(Operation):
    """Two operands that spread over the shape of dest."""

    signature: ClassVar[tuple[Operand, ...]] = (
        out(strided=True),
        read("lhs", strided=True),
        read("rhs", strided=True),
    )
    in_place: ClassVar[tuple[tuple[str, str], ...]] = (("dest", "lhs"), ("dest", "rhs"))
    data_parallel: ClassVar[bool] = True
    plain: ClassVar[Callable[..., Array]]
    in_int8: ClassVar[Callable[..., Array]]

    def verify(self, types: Types) -> None:
        """One element type, and shapes that spread."""
        _verify_choices(types)

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.elementwise."""
        lhs, rhs = arrays["lhs"], arrays["rhs"]
        if not types["dest"].is_quantized:
            arrays["dest"][...] = type(self).plain(lhs, rhs)
            return
        of_lhs, of_rhs, of_dest = (parameters_of(types[name]) for name in ("lhs", "rhs", "dest"))
        arrays["dest"][...] = type(self).in_int8(lhs, of_lhs, rhs, of_rhs, of_dest)


@register
@dataclass(frozen=True)
class ElementMax(_Extremum):
    """dest = the larger of lhs and rhs; NaN where either is."""

    opcode: ClassVar[str] = "elementmax"
    plain: ClassVar[Callable[..., Array]] = staticmethod(maximum)
    in_int8: ClassVar[Callable[..., Array]] = staticmethod(max_int8)


@register
@dataclass(frozen=True)
class ElementMin(_Extremum):
    """dest = the smaller of lhs and rhs; NaN where either is."""

    opcode: ClassVar[str] = "elementmin"
    plain: ClassVar[Callable[..., Array]] = staticmethod(minimum)
    in_int8: ClassVar[Callable[..., Array]] = staticmethod(min_int8)


@register
@dataclass(frozen=True)
class Select(Operation):
    """dest = lhs where the condition holds, else rhs."""

    opcode: ClassVar[str] = "select"
    signature: ClassVar[tuple[Operand, ...]] = (
        out(strided=True),
        read("condition", strided=True),
        read("lhs", strided=True),
        read("rhs", strided=True),
    )
    in_place: ClassVar[tuple[tuple[str, str], ...]] = (("dest", "lhs"), ("dest", "rhs"))
    data_parallel: ClassVar[bool] = True

    def verify(self, types: Types) -> None:
        """A bool condition, choices of one element type, and shapes that spread."""
        condition = types["condition"]
        require(condition.element is ElementType.BOOL, f"condition is {condition}, not bool")
        require_broadcast(types, "condition", types["dest"].shape)
        _verify_choices(types)

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.elementwise."""
        condition, lhs, rhs = arrays["condition"], arrays["lhs"], arrays["rhs"]
        if not types["dest"].is_quantized:
            arrays["dest"][...] = np.where(condition, lhs, rhs)
            return
        of_lhs, of_rhs, of_dest = (parameters_of(types[name]) for name in ("lhs", "rhs", "dest"))
        arrays["dest"][...] = where_int8(condition, lhs, of_lhs, rhs, of_rhs, of_dest)
