"""Question to a Cortex-M whether it has what code needs, by the registers of its System Control Block.

Armv8-M Architecture Reference Manual (DDI 0553), chapter D1: CPACR, MVFR0, MVFR1. Only privileged
code reads them. Armv6-M has none of them, and needs none: any Cortex-M runs its code.
"""

from __future__ import annotations

from llvmlite import ir

from qglow.kernels.emit.builder import I1, I32, PTR, Builder, Value

_COPROCESSORS = 0xE000ED88
_FULL_ACCESS = 0xF << 20
"""Register of access to coprocessors, and its bits that turn the float unit on (10 and 11)."""
_FIELDS = {"vfp": (0xE000EF40, 4, 1), "mve": (0xE000EF44, 8, 1)}
"""Register of a feature, first bit of its field of four, and the least value with which it is there."""


def microcontroller_has(e: Builder, features: frozenset[str]) -> Value:
    """Emit the question whether the processor has these features and its float unit is on, as an i1."""
    access = e.b.and_(_register(e, _COPROCESSORS), ir.Constant(I32, _FULL_ACCESS))
    fits = e.b.icmp_unsigned("==", access, ir.Constant(I32, _FULL_ACCESS))
    if "vfp" not in features:
        fits = ir.Constant(I1, 1)
    for feature in sorted(features & set(_FIELDS)):
        address, first, least = _FIELDS[feature]
        moved = e.b.lshr(_register(e, address), ir.Constant(I32, first))
        field = e.b.and_(moved, ir.Constant(I32, 0xF))
        fits = e.b.and_(fits, e.b.icmp_unsigned(">=", field, ir.Constant(I32, least)))
    return fits


def _register(e: Builder, address: int) -> Value:
    return e.load(e.b.inttoptr(ir.Constant(I32, address), PTR), I32, align=4)
