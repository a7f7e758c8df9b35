"""Arm processors as vector targets: their instructions for what kernels ask a target for.

Instructions: Arm Architecture Reference Manual for A-profile (DDI 0487) and for Armv7-M (DDI 0403).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from qglow.kernels.arithmetic.soft_float import rescale_in_integers, round_in_integers
from qglow.kernels.emit.builder import F32, I1, I8, I16, I32, I64, VOID, Builder, Value, poison, scalar, vec
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.emit.tiles import Tile, lane_products, row_products
from qglow.targets.arm.identification import microcontroller_has
from qglow.targets.portable.description import round_by_instruction, round_by_shift

MODES = 0b1111 << 22
"""Bits of FPSCR for rounding, flushing to zero and default NaN."""
_READ_REGISTER = "llvm.read_volatile_register.i64"
_IDENTIFIED = {"dotprod": ("ID_AA64ISAR0_EL1", 44), "i8mm": ("ID_AA64ISAR1_EL1", 52)}
"""Identification register of a feature, and the first bit of its field, which is 0 without it."""
ENTRIES = 64
"""Entries of a byte table that one instruction looks up."""


def _dot(e: Builder, sums: Value, lhs: Value, rhs: Value) -> Value:
    """sdot: four products of each lane."""
    lanes = sums.type.count
    return e.call(f"llvm.aarch64.neon.sdot.v{lanes}i32.v{4 * lanes}i8", sums.type, [sums, lhs, rhs])


def _dual_products(e: Builder, sums: Value, lhs: Value, rhs: Value) -> Value:
    """smlad: both products of 16 bits of a lane, added to its sum."""
    lanes = vec(I32, sums.type.count)
    left, right = e.b.bitcast(lhs, lanes), e.b.bitcast(rhs, lanes)
    for lane in range(sums.type.count):
        operands = [e.extract(value, lane) for value in (left, right, sums)]
        sums = e.insert(sums, e.call("llvm.arm.smlad", I32, operands), lane)
    return sums


def _across(e: Builder, total: Value, lhs: Value, rhs: Value) -> Value:
    """vmladava: all sixteen products of two registers, added to a scalar."""
    how = [ir.Constant(I32, 0)] * 3  # signed, added, in their order
    return e.call("llvm.arm.mve.vmldava.v16i8", I32, [*how, total, lhs, rhs])


def _word_products(e: Builder, sums: Value, lhs: Value, rhs: Value) -> Value:
    """vmlal: products of 16 bits of each lane; LLVM takes `rhs` from an element where it may."""
    return e.b.add(sums, e.call("llvm.arm.neon.vmulls.v4i32", sums.type, [lhs, rhs]))


def _matrix(e: Builder, sums: Value, lhs: Value, rhs: Value) -> Value:
    """smmla: two rows of eight bytes times two rows of eight bytes."""
    return e.call("llvm.aarch64.neon.smmla.v4i32.v16i8", sums.type, [sums, lhs, rhs])


SMLAD = Tile("smlad", 1, 4, 2, "s16", "s16", lane_products, _dual_products)
SDOT = Tile("sdot", 1, 4, 4, "s8", "s8", lane_products, _dot, by_element=True)
VMLAL = Tile("vmlal", 1, 4, 1, "s16", "s16", lane_products, _word_products, by_element=True)
VMLADAVA = Tile("vmladava", 1, 1, 16, "s8", "s8", lane_products, _across)
SMMLA = Tile("smmla", 2, 2, 8, "s8", "s8", row_products, _matrix)


@dataclass(frozen=True)
class Aarch64Target(VectorTarget):
    """64-bit Arm with NEON.

    plainest: the target without extensions, None for that one itself.
    """

    plainest: VectorTarget | None = None

    @property
    def base(self) -> VectorTarget:
        """64-bit Arm without extensions."""
        return self if self.plainest is None else self.plainest

    def processor_fits(self, e: Builder) -> Value:
        """Read the identification registers, which Linux shows to programs."""
        fits: Value = ir.Constant(I1, 1)
        for feature, (register, place) in _IDENTIFIED.items():
            if feature in self.requires:
                field = e.b.and_(e.b.lshr(_system_register(e, register), e.index(place)), e.index(0xF))
                fits = e.b.and_(fits, e.b.icmp_unsigned(">=", field, e.index(1)))
        return fits

    def round_to_words(self, e: Builder, value: Value) -> Value:
        """Round with fcvtns, which ties to even and saturates."""
        lanes = value.type.count
        if lanes % 4 or lanes & (lanes - 1):
            return super().round_to_words(e, value)
        kind, parts = vec(I32, 4), []
        for first in range(0, lanes, 4):
            part = e.shuffle(value, None, range(first, first + 4)) if lanes > 4 else value
            parts.append(e.call("llvm.aarch64.neon.fcvtns.v4i32.v4f32", kind, [part]))
        return e.concat(parts)

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

    def cycles(self, e: Builder) -> Value:
        """Read the counter of virtual time: systems do not let programs read the one of cycles."""
        return _system_register(e, "CNTVCT_EL0")


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
class MicrocontrollerTarget(Arm32Target):
    """Cortex-M with a float unit and DSP instructions, whose vectors LLVM takes apart."""

    def processor_fits(self, e: Builder) -> Value:
        """Read the identification registers, which privileged code sees."""
        return microcontroller_has(e, self.requires)

    def split_bytes(self, e: Builder, word: Value, lanes: int, signed: bool) -> tuple[Value, Value]:
        """Widen with sxtb16."""
        turned = e.call("llvm.fshr.i32", I32, [word, word, ir.Constant(I32, 8)])
        even, odd = (e.call("llvm.arm.sxtb16", I32, [value]) for value in (word, turned))
        words = vec(I16, 2 * lanes)
        return e.b.bitcast(e.splat(even, lanes), words), e.b.bitcast(e.splat(odd, lanes), words)

    def load_steps(self, e: Builder, pointer: Value, lanes: int) -> tuple[Value, Value]:
        """Load four bytes for each lane, and widen them with sxtb16."""
        steps = [e.load(e.offset(pointer, 4 * lane), I32, align=4) for lane in range(lanes)]
        even, odd = zip(*(self.split_bytes(e, step, 1, signed=True) for step in steps), strict=True)
        return e.concat(list(even)), e.concat(list(odd))

    @property
    def multiplies_halves(self) -> bool:
        """Whether smlabb and smlatt are the fastest products: not where there are vectors."""
        return self.tile("smlad") is not None

    def add_half_product(self, e: Builder, total: Value, lhs: Value, rhs: Value, upper: bool) -> Value:
        """Multiply and add with smlabb or smlatt."""
        return e.call(f"llvm.arm.smla{'tt' if upper else 'bb'}", I32, [lhs, rhs, total])

    def round_to_words(self, e: Builder, value: Value) -> Value:
        """Round each lane with vcvtr, which rounds as FPSCR says, to even, and saturates."""
        words = poison(vec(I32, value.type.count))
        for lane in range(value.type.count):
            rounded = e.call("llvm.arm.vcvtr.f32", F32, [e.extract(value, lane)])
            words = e.insert(words, e.b.bitcast(rounded, I32), lane)
        return words


@dataclass(frozen=True)
class HeliumTarget(MicrocontrollerTarget):
    """Cortex-M with vectors of 128 bits (MVE), which are quick in order and narrow as they store."""

    def round_to_words(self, e: Builder, value: Value) -> Value:
        """Round with vrintn and convert."""
        return round_by_instruction(e, value)


@dataclass(frozen=True)
class SoftFloatTarget(VectorTarget):
    """32-bit Arm without a float unit: int8 results are computed without floats."""

    def load_steps(self, e: Builder, pointer: Value, lanes: int) -> tuple[Value, Value]:
        """Load every byte by itself, with its sign."""
        count = 4 * lanes
        words = e.b.sext(e.load(pointer, vec(I8, count), align=count), vec(I16, count))
        pairs = [[4 * lane + place for lane in range(lanes) for place in half] for half in ((0, 2), (1, 3))]
        return e.shuffle(words, None, pairs[0]), e.shuffle(words, None, pairs[1])

    def round_to_words(self, e: Builder, value: Value) -> Value:
        """Round the bits of floats."""
        return round_in_integers(e, value)

    def rescale_to_words(self, e: Builder, total: Value, multiplier: Value) -> Value:
        """Multiply and round in integers."""
        return rescale_in_integers(e, total, multiplier)


def _system_register(e: Builder, name: str) -> Value:
    reader = e.module.globals.get(_READ_REGISTER)
    if reader is None:
        reader = ir.Function(e.module, ir.FunctionType(I64, [ir.MetaDataType()]), _READ_REGISTER)
    return e.b.call(reader, [e.module.add_metadata([ir.MetaDataString(e.module, name)])])


def _joined(e: Builder, parts: list[Value]) -> Value:
    value = parts[0]
    for part in parts[1:]:
        lanes = value.type.count
        padded = e.shuffle(part, None, [*range(16), *([-1] * (lanes - 16))]) if lanes > 16 else part
        value = e.shuffle(value, padded, range(lanes + 16))
    return value
