"""The RISC-V processors that code is made for.

Control registers: The RISC-V Instruction Set Manual, volume I, chapter "F" Extension.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from llvmlite import ir

from qglow.kernels.emit.builder import I32, VOID, Builder
from qglow.kernels.emit.target import VectorTarget
from qglow.targets.native.described import DescribedTarget
from qglow.targets.portable.description import EMBEDDED, GROUPED, PAIRS, WORDS

TO_NEAREST = 1
"""Rounding to nearest, ties to even, as `FLT_ROUNDS` of C counts the modes."""
_EXTENSIONS = "+m,+a,+f,+d,+c"


@dataclass(frozen=True)
class RiscvTarget(VectorTarget):
    """RISC-V with floats of 64 bits."""

    def enter_float_environment(self, e: Builder) -> Any:
        """Save the rounding mode and round to nearest even; subnormals are always kept."""
        saved = e.call("llvm.get.rounding", I32, [])
        e.call("llvm.set.rounding", VOID, [ir.Constant(I32, TO_NEAREST)])
        return saved

    def leave_float_environment(self, e: Builder, saved: Any) -> None:
        """Restore the rounding mode."""
        e.call("llvm.set.rounding", VOID, [saved])


RISCV64 = RiscvTarget(
    name="riscv64",
    triple="riscv64-unknown-linux-gnu",
    cpu="generic-rv64",
    features=_EXTENSIONS,
    register_bits=128,
    registers=8,
    has_fma=True,
    activation_bias=0,
    tiles=(PAIRS,),
    model=EMBEDDED,
    loop_lanes=4,
    table_lanes=4,
    abi="lp64d",
    interleaves=False,
)
RISCV64_V = replace(
    RISCV64,
    name="riscv64-v",
    features=f"{_EXTENSIONS},+v",
    register_bits=512,
    registers=8,
    tiles=(WORDS, PAIRS),
    model=GROUPED,
    loop_lanes=16,
    table_lanes=16,
    linux_capabilities=1 << (ord("v") - ord("a")),
)

TARGETS: Mapping[str, DescribedTarget] = {
    "riscv64": DescribedTarget(RISCV64, "64-bit RISC-V with floats (RV64GC)"),
    "riscv64-v": DescribedTarget(RISCV64_V, "64-bit RISC-V with vectors of at least 128 bits"),
}
