"""Arm processors as vector targets: their instructions for what kernels ask a target for.

Instructions: Arm Architecture Reference Manual for A-profile (DDI 0487) and for Armv7-M (DDI 0403).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from qglow.kernels.emit.builder import I8, I32, I64, VOID, Builder, Value, scalar, vec
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.emit.tiles import Tile, lane_products
from qglow.targets.portable.description import round_by_shift

MODES = 0b1111 << 22
"""Bits of FPSCR for rounding, flushing to zero and default NaN."""
ENTRIES = 64
"""Entries of a byte table that one instruction looks up."""


def _dot(e: Builder, sums: Value, lhs: Value, rhs: Value) -> Value:
    """sdot: four products of each lane."""
    lanes = sums.type.count
    return e.call(f"llvm.aarch64.neon.sdot.v{lanes}i32.v{4 * lanes}i8", sums.type, [sums, lhs, rhs])


SDOT = Tile("sdot", 1, 4, 4, "s8", "s8", lane_products, _dot)


@dataclass(frozen=True)
class Aarch64Target(VectorTarget):
    """64-bit Arm with NEON."""

    def look_up(self, e: Builder, index: Value, table: Value) -> Value:
        """Look up with tbl and tbx, 64 entries at a time."""
        lanes = index.type.count
        if lanes % 16:
            return super().look_up(e, index, table)
        kind = vec(I8, 16)
        rows = [e.load(e.offset(table, place), kind) for place in range(0, 256, 16)]
        quarters = [rows[number : number + 4] for number in range(0, 16, 4)]
        parts = []
        for first in range(0, lanes, 16):
            part = e.shuffle(index, None, range(first, first + 16))
            found = e.call("llvm.aarch64.neon.tbl4.v16i8", kind, [*quarters[0], part])
            for number in (1, 2, 3):
                moved = e.b.sub(part, scalar(kind, ENTRIES * number))
                found = e.call("llvm.aarch64.neon.tbx4.v16i8", kind, [found, *quarters[number], moved])
            parts.append(found)
        return e.concat(parts) if len(parts) & (len(parts) - 1) == 0 else _joined(e, parts)

    def enter_float_environment(self, e: Builder) -> Any:
        """Save FPCR and set its default: round to nearest, subnormals kept."""
        saved = e.call("llvm.aarch64.get.fpcr", I64, [])
        e.call("llvm.aarch64.set.fpcr", VOID, [ir.Constant(I64, 0)])
        return saved

    def leave_float_environment(self, e: Builder, saved: Any) -> None:
        """Restore FPCR."""
        e.call("llvm.aarch64.set.fpcr", VOID, [saved])


@dataclass(frozen=True)
class Arm32Target(VectorTarget):
    """32-bit Arm with a float unit."""

    def round_to_words(self, e: Builder, value: Value) -> Value:
        """Round by an addition: vectors have no instruction for it before Armv8."""
        return round_by_shift(e, value)

    def enter_float_environment(self, e: Builder) -> Any:
        """Save FPSCR, and clear what changes results: other rounding, flushing, default NaN.

        The other bits stay: MVE's loops fault without theirs.
        """
        saved = e.call("llvm.arm.get.fpscr", I32, [])
        e.call("llvm.arm.set.fpscr", VOID, [e.b.and_(saved, ir.Constant(I32, ~MODES))])
        return saved

    def leave_float_environment(self, e: Builder, saved: Any) -> None:
        """Restore FPSCR."""
        e.call("llvm.arm.set.fpscr", VOID, [saved])


@dataclass(frozen=True)
class SoftFloatTarget(VectorTarget):
    """32-bit Arm without a float unit."""

    def round_to_words(self, e: Builder, value: Value) -> Value:
        """Round by an addition, which needs nothing of a mathematical library."""
        return round_by_shift(e, value)


def _joined(e: Builder, parts: list[Value]) -> Value:
    value = parts[0]
    for part in parts[1:]:
        lanes = value.type.count
        padded = e.shuffle(part, None, [*range(16), *([-1] * (lanes - 16))]) if lanes > 16 else part
        value = e.shuffle(value, padded, range(lanes + 16))
    return value
