"""x86-64 as a vector target: its instructions for the operations that kernels ask a target for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from qglow.kernels.emit.builder import (
    F32,
    I8,
    I16,
    I32,
    Builder,
    Index,
    Value,
    constant_vector,
    scalar,
    vec,
)
from qglow.kernels.emit.target import OwnKernels, VectorTarget
from qglow.targets.x86 import lookup, processor
from qglow.targets.x86.amx import matrix_peak
from qglow.targets.x86.features import processor_has

TRIPLE = "x86_64-unknown-linux-gnu"
ACTIVATION_BIAS = 128
"""vpdpbusd and vpmaddubsw multiply unsigned bytes of activations by signed ones of weights."""
PACKS = {
    16: ("llvm.x86.avx512.packssdw.512", "llvm.x86.avx512.packuswb.512"),
    8: ("llvm.x86.avx2.packssdw", "llvm.x86.avx2.packuswb"),
    4: ("llvm.x86.sse2.packssdw.128", "llvm.x86.sse2.packuswb.128"),
}
"""Saturating packs to int16 and to unsigned bytes, by the number of int32 lanes of a register."""
PICKED_ENTRIES = 16
"""Floats that vpermps picks from."""
SCALED_LANES, CURRENT_ROUNDING = 16, 4
"""Lanes of vscalefps, and what its intrinsic takes where MXCSR says how to round."""


@dataclass(frozen=True)
class X86Target(VectorTarget):
    """One level of x86-64.

    emulates_amx: replaces tile instructions by functions over memory, for tests on other hosts.
    """

    emulates_amx: bool = False
    plainest: VectorTarget | None = None
    more_kernels: OwnKernels = OwnKernels()

    @property
    def own_kernels(self) -> OwnKernels:
        """Kernels of AMX tiles, or of lists of steps."""
        return self.more_kernels

    @property
    def base(self) -> VectorTarget:
        """x86-64 without extensions."""
        return self if self.plainest is None else self.plainest

    def has(self, feature: str) -> bool:
        """Whether code for this target may use a feature (LLVM's name for it)."""
        return feature in self.requires

    def prepare_process(self) -> None:
        """Ask Linux for tiles. Raises UsageError if it refuses."""
        if self.has("amx-tile"):
            processor.request_tiles()

    def narrow_words(self, e: Builder, low: Value, high: Value) -> Value:
        """Narrow with packssdw, which works within 128 bits."""
        lanes = low.type.count
        return e.call(PACKS[lanes][0], vec(I16, 2 * lanes), [low, high])

    def narrow_bytes(self, e: Builder, low: Value, high: Value) -> Value:
        """Narrow with packuswb, which works within 128 bits."""
        lanes = low.type.count
        return e.call(PACKS[lanes // 2][1], vec(I8, 2 * lanes), [low, high])

    def scaled_by_powers(self, e: Builder, values: Value, powers: Value) -> Value | None:
        """Multiply with vscalefps, register by register, where the target has it."""
        lanes = values.type.count if isinstance(values.type, ir.VectorType) else 1
        if not self.has("avx512f") or lanes % SCALED_LANES:
            return None
        part = vec(F32, SCALED_LANES)
        every = [scalar(part, 0), ir.Constant(I16, -1), ir.Constant(I32, CURRENT_ROUNDING)]
        found = []
        for first in range(0, lanes, SCALED_LANES):
            order = range(first, first + SCALED_LANES)
            given = [x if lanes == SCALED_LANES else e.shuffle(x, None, order) for x in (values, powers)]
            found.append(e.call("llvm.x86.avx512.mask.scalef.ps.512", part, [*given, *every]))
        return e.concat(found)

    def look_up(self, e: Builder, index: Value, table: Value) -> Value:
        """Look up with the widest permute that the target has, or in the portable form."""
        for feature, emit in _LOOKUPS.items():
            if self.has(feature):
                return emit(e, index, table)
        return super().look_up(e, index, table)

    def pick_floats(self, e: Builder, index: Value, entries: Sequence[float]) -> Value | None:
        """Pick with vpermps, where a register holds 16 floats."""
        if self.float_lanes != PICKED_ENTRIES:
            return None
        kind = vec(F32, PICKED_ENTRIES)
        return e.call("llvm.x86.avx512.permvar.sf.512", kind, [constant_vector(F32, entries), index])

    def enter_float_environment(self, e: Builder) -> Any:
        """Save MXCSR and set its default."""
        return processor.enter_default_environment(e)

    def leave_float_environment(self, e: Builder, saved: Any) -> None:
        """Restore MXCSR."""
        processor.restore_environment(e, saved)

    def processor_fits(self, e: Builder) -> Value:
        """Ask with cpuid and xgetbv."""
        return processor_has(e, self.requires)

    def spin_hint(self, e: Builder) -> None:
        """Emit pause."""
        processor.pause(e)

    def wait(self, e: Builder, pointer: Value, value: Value) -> None:
        """Sleep with futex(2)."""
        processor.sleep_while(e, pointer, value)

    def wake(self, e: Builder, pointer: Value, most: Value | None) -> None:
        """Wake with futex(2)."""
        processor.wake_sleepers(e, pointer, most)

    def matrix_peak(self, e: Builder, turns: Index) -> tuple[int, int] | None:
        """Emit multiplications of AMX tiles, where the target has them."""
        return None if self.tile("tdpbusd") is None else matrix_peak(e, turns, self.emulates_amx)


def emulates_amx(target: VectorTarget) -> bool:
    """Whether tile instructions of a target are functions over memory."""
    return isinstance(target, X86Target) and target.emulates_amx


_LOOKUPS: dict[str, Callable[[Builder, Value, Value], Value]] = {
    "avx512vbmi": lookup.by_bytes,
    "avx512bw": lookup.by_words,
    "avx2": lookup.by_shuffles,
}
"""Emitters of table lookups by the feature that they need, the fastest first."""
