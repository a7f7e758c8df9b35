"""Description of a processor for kernels: registers, multiplications, and the few emitters that differ.

Kernels ask this description and name no processor. Every emitter has a portable form in plain LLVM IR, so
that a new target starts as a few numbers and overrides only what its processor does in fewer instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from llvmlite import ir

from qglow.kernels.emit.builder import I1, I8, I16, I32, I64, Builder, Index, Value, scalar, suffix, vec
from qglow.kernels.emit.machine import MachineModel
from qglow.kernels.emit.tiles import Tile

PART_BITS = 128
"""Bits of the segments within which vectors are narrowed and interleaved, as in most vector units."""
POLL_MICROSECONDS = 50
"""Time that the portable `wait` sleeps before it returns."""


class NarrowWeights(Enum):
    """Weights that take a byte of memory although they are multiplied in 16 bits.

    ONCE: those that a call reads once. ALL: others too, where that costs time.
    """

    NONE = auto()
    ONCE = auto()
    ALL = auto()


class CodeSize(Enum):
    """Degree to which code is kept small at the cost of time. The value is LLVM's attribute of functions."""

    FAST = ""
    SMALL = "optsize"
    SMALLEST = "minsize"


@dataclass(frozen=True, eq=False)
class OwnKernels:
    """Kernels of one target beside those that all targets have.

    classes: kernel classes by name. factories: functions from an instruction and the target to candidates,
    by the opcode of the instruction (emit.kernel has the types).
    """

    classes: Mapping[str, Any] = field(default_factory=dict)
    factories: Mapping[str, Sequence[Callable[..., list[Any]]]] = field(default_factory=dict)


@dataclass(frozen=True)
class VectorTarget:
    """A processor's vector unit; a subclass replaces the emitters that it has instructions for.

    name: as users write it. triple, cpu, features: LLVM's.
    register_bits, registers: size and number of vector registers.
    has_fma: whether one instruction multiplies and adds with one rounding.
    rounds_chains_once: whether float chains have one rounding a step also where no instruction does that,
        in some twenty instructions. Else they multiply and add, within a declared tolerance.
    requires: features of the host (LLVM's names) without which code crashes.
    converts_half: whether float16 is converted by instructions.
    activation_bias: added to every int8 activation in memory: 128 where a multiplication takes unsigned
        bytes of activations, else 0.
    tiles: multiplications of int8 and int16, the fastest of each shape first. model: parameters of costs.
    loop_lanes: elements in one vector of an elementwise loop, whatever the size of a register: LLVM splits
        it into several registers, which hide each other's latency. table_lanes: the same for byte tables.
    loop_unroll: such vectors in one iteration of a long loop.
    shares_work: whether threads may share a program.
    fuses_tables_from: least bytes of a product's results for which a table lookup that follows is done
        before they are stored; None for never.
    abi: name of the calling convention, empty for that of the triple. relocation: LLVM's relocation model.
    pointer_bytes: size of an address.
    interleaves: whether few instructions interleave the bytes of vectors and pack four vectors of words to
        one of bytes, as they do not in scalar code.
    float_features: LLVM's features for functions whose operands are floats, where the vector unit flushes
        subnormals and scalars have to compute; None where it does not.
    pads_images: whether images lie in memory with the border that kernels wish for.
    narrow: which int8 weights of products of 16 bits are bytes in memory, and widened as they are loaded.
    size: how much code is kept small at the cost of time.
    linux_capabilities: bits of AT_HWCAP that Linux sets where the processor runs the code; 0 where the code
        asks the processor itself.
    """

    name: str
    triple: str
    cpu: str
    features: str
    register_bits: int
    registers: int
    has_fma: bool
    activation_bias: int
    tiles: tuple[Tile, ...]
    model: MachineModel
    requires: frozenset[str] = frozenset()
    converts_half: bool = False
    loop_lanes: int = 16
    table_lanes: int = 64
    loop_unroll: int = 4
    shares_work: bool = True
    fuses_tables_from: int | None = None
    abi: str = ""
    relocation: str = "pic"
    pointer_bytes: int = 8
    interleaves: bool = True
    rounds_chains_once: bool = True
    float_features: str | None = None
    pads_images: bool = True
    narrow: NarrowWeights = NarrowWeights.NONE
    size: CodeSize = CodeSize.FAST
    linux_capabilities: int = 0

    @property
    def has_float_unit(self) -> bool:
        """Whether floats are passed in registers of a unit of their own."""
        return not self.triple.endswith("-eabi")

    @property
    def llvm_settings(self) -> tuple[str, ...]:
        """Arguments after the triple that make LLVM's target machine."""
        return self.cpu, self.features, self.abi, self.relocation

    # Sizes

    @property
    def float_lanes(self) -> int:
        """float32 elements of one register."""
        return self.register_bits // 32

    @property
    def byte_lanes(self) -> int:
        """Bytes of one register."""
        return self.register_bits // 8

    @property
    def smallest_byte(self) -> int:
        """The least byte that memory holds for an int8 activation: 0, or -128 without a bias."""
        return self.activation_bias - 128

    @property
    def largest_byte(self) -> int:
        """The largest byte that memory holds for an int8 activation: 255, or 127 without a bias."""
        return self.activation_bias + 127

    @property
    def byte_sort(self) -> str:
        """Letter in the names of LLVM's min and max for bytes of int8 activations: "u"nsigned or "s"igned."""
        return "u" if self.activation_bias else "s"

    # Tiles and kernels

    def tile(self, name: str) -> Tile | None:
        """The tile of this name, if the target has it."""
        return next((tile for tile in self.tiles if tile.name == name), None)

    def vector_tile(self, k: int) -> Tile | None:
        """The exact vector tile of `k` products a lane that takes activations as they are held, if any."""
        lhs = ("s16", "u8" if self.activation_bias else "s8")
        return next((t for t in self.tiles if t.is_vector and t.is_exact and t.k == k and t.lhs in lhs), None)

    @property
    def own_kernels(self) -> OwnKernels:
        """Kernels that only this target has."""
        return OwnKernels()

    @property
    def base(self) -> VectorTarget:
        """The target of the family with the fewest features: code for it serves all programs of a process."""
        return self

    def prepare_process(self) -> None:
        """Request what the target's code needs from the system. Raises UsageError if it refuses."""

    # Vectors

    def narrow_words(self, e: Builder, low: Value, high: Value) -> Value:
        """Narrow two int32 vectors to one of int16, saturating.

        Each `PART_BITS` of the result are a part of `low` followed by a part of `high`.
        """
        return _narrowed(e, low, high, I16, -(1 << 15), (1 << 15) - 1)

    def narrow_bytes(self, e: Builder, low: Value, high: Value) -> Value:
        """Narrow two int16 vectors to one of bytes, saturating to activations, in the same order of lanes."""
        return _narrowed(e, low, high, I8, self.smallest_byte, self.largest_byte)

    def split_bytes(self, e: Builder, word: Value, lanes: int, signed: bool) -> tuple[Value, Value]:
        """Bytes 0 and 2 of an i32, then bytes 1 and 3, widened to int16, in every one of so many lanes."""
        words = vec(I16, 2 * lanes)
        step = e.b.bitcast(e.splat(word, lanes), words)
        if signed:
            # A shift up by 8 and an arithmetic shift down extend the sign of even bytes. Odd bytes are in the
            # upper half of a word already, so the shift down is enough.
            high = e.b.shl(step, scalar(words, 8))
            return e.b.ashr(high, scalar(words, 8)), e.b.ashr(step, scalar(words, 8))
        even = e.b.and_(step, scalar(words, 255))
        return even, e.b.lshr(step, scalar(words, 8))

    def load_steps(self, e: Builder, pointer: Value, lanes: int) -> tuple[Value, Value]:
        """Load four signed bytes for each lane: bytes 0 and 2, then bytes 1 and 3, widened to int16."""
        words = vec(I16, 2 * lanes)
        step = e.load(pointer, words, align=4 * lanes)
        return e.b.ashr(e.b.shl(step, scalar(words, 8)), scalar(words, 8)), e.b.ashr(step, scalar(words, 8))

    @property
    def multiplies_halves(self) -> bool:
        """Whether one instruction adds the product of a half of two words, which two bytes are widened to."""
        return False

    def add_half_product(self, e: Builder, total: Value, lhs: Value, rhs: Value, upper: bool) -> Value:
        """Add the product of the lower or the upper int16 of two words to an i32."""
        halves = [e.b.ashr(value, scalar(I32, 16)) for value in (lhs, rhs)]
        if not upper:
            halves = [e.b.sext(e.b.trunc(value, I16), I32) for value in (lhs, rhs)]
        return e.b.add(total, e.b.mul(*halves))

    def round_to_words(self, e: Builder, value: Value) -> Value:
        """Round float32 half to even to int32. Of a result beyond 2^22 only the sign is needed."""
        wide = vec(I32, value.type.count)
        return e.call(f"llvm.lrint.{suffix(wide)}.{suffix(value.type)}", wide, [value])

    def scaled_by_powers(self, e: Builder, values: Value, powers: Value) -> Value | None:
        """Emit values times 2^powers (whole float32), rounded once; None where that is no instruction."""
        return None

    def rescale_to_words(self, e: Builder, total: Value, multiplier: Value) -> Value:
        """Compute float32(total) * multiplier of int32, rounded as `round_to_words` does."""
        return self.round_to_words(e, e.b.fmul(e.b.sitofp(total, multiplier.type), multiplier))

    def look_up(self, e: Builder, index: Value, table: Value) -> Value:
        """Look up every byte of `index`, taken as unsigned, in the 256 bytes at the address `table`."""
        result = index
        for lane in range(index.type.count):
            place = e.b.zext(e.extract(index, lane), I64)
            result = e.insert(result, e.load(e.offset(table, place), I8), lane)
        return result

    def pick_floats(self, e: Builder, index: Value, entries: Sequence[float]) -> Value | None:
        """Pick one of 16 floats by the lowest four bits of each int32 of `index`, whatever others are.

        None where no instruction does that.
        """
        return None

    # The process around a program

    def enter_float_environment(self, e: Builder) -> Any:
        """Set rounding to nearest and keep denormals; returns the state for `leave_float_environment`.

        Emits nothing by default, for processors whose vector units always compute so.
        """
        return None

    def leave_float_environment(self, e: Builder, saved: Any) -> None:
        """Restore the caller's float environment."""

    def processor_fits(self, e: Builder) -> Value:
        """Ask processor and system whether they run the target's code, as an i1.

        True by default, for processors whose code cannot ask.
        """
        return ir.Constant(I1, 1)

    def cycles(self, e: Builder) -> Value:
        """Read a counter (i64) that grows with time."""
        return e.call("llvm.readcyclecounter", I64, [])

    def spin_hint(self, e: Builder) -> None:
        """Tell the processor that this thread spins on a word of memory."""

    def wait(self, e: Builder, pointer: Value, value: Value) -> None:
        """Sleep while the i32 at `pointer` is `value`; may return earlier, so the caller has to check again.

        The portable form polls, since the C library has no way to sleep until a word changes.
        """
        e.call("usleep", I32, [ir.Constant(I32, POLL_MICROSECONDS)])

    def wake(self, e: Builder, pointer: Value, most: Value | None) -> None:
        """Wake threads that sleep in `wait` on this address: all, or at most `most` (i32)."""

    # Measuring

    def matrix_peak(self, e: Builder, turns: Index) -> tuple[int, int] | None:
        """Emit `turns` iterations of the matrix unit's multiplications; None if there is no such unit.

        Returns the products of one iteration and the bytes of memory that they use.
        """
        return None


def _narrowed(e: Builder, low: Value, high: Value, element: Any, least: int, most: int) -> Value:
    """Narrow both vectors with saturation to elements of half the size, alternating their parts."""
    lanes, part = low.type.count, PART_BITS // low.type.element.width
    order = []
    for first in range(0, lanes, part):
        order += [*range(first, first + part), *range(lanes + first, lanes + first + part)]
    joined = e.shuffle(low, high, order)
    joined = e.intrinsic("llvm.smax", joined, scalar(joined.type, least))
    joined = e.intrinsic("llvm.smin", joined, scalar(joined.type, most))
    return e.b.trunc(joined, vec(element, 2 * lanes))


def multiply_words(e: Builder, sums: Value, lhs: Value, rhs: Value) -> Value:
    """Add the int16 product of every lane to `sums` in plain LLVM IR: the portable tile of k = 1."""
    wide = [e.b.sext(operand, sums.type) for operand in (lhs, rhs)]
    return e.b.add(sums, e.b.mul(*wide))


def multiply_pairs(e: Builder, sums: Value, lhs: Value, rhs: Value) -> Value:
    """Add both int16 products of every lane to `sums` in plain LLVM IR: the portable tile of k = 2."""
    lanes = sums.type.count
    for first in (0, 1):
        half = range(first, 2 * lanes, 2)
        wide = [e.b.sext(e.shuffle(operand, None, half), vec(I32, lanes)) for operand in (lhs, rhs)]
        sums = e.b.add(sums, e.b.mul(*wide))
    return sums
