"""The Arm processors that code is made for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from qglow.kernels.emit.target import NarrowWeights
from qglow.targets.arm.description import (
    SDOT,
    SMLAD,
    SMMLA,
    VMLADAVA,
    VMLAL,
    Aarch64Target,
    Arm32Target,
    HeliumTarget,
    MicrocontrollerTarget,
    SoftFloatTarget,
)
from qglow.targets.native.described import DescribedTarget
from qglow.targets.native.target import NativeTarget
from qglow.targets.portable.description import ELEMENT_WORDS, EMBEDDED, HELIUM, MANY_REGISTERS, PAIRS, SCALAR

AARCH64 = Aarch64Target(
    name="aarch64",
    triple="aarch64-unknown-linux-gnu",
    cpu="generic",
    features="+neon",
    register_bits=128,
    registers=32,
    has_fma=True,
    activation_bias=0,
    tiles=(ELEMENT_WORDS, PAIRS),
    model=MANY_REGISTERS,
    converts_half=True,
)
AARCH64_DOTPROD = replace(
    AARCH64,
    model=MANY_REGISTERS,
    name="aarch64-dotprod",
    features="+neon,+dotprod",
    requires=frozenset({"dotprod"}),
    plainest=AARCH64,
    tiles=(SDOT, PAIRS),
)
AARCH64_I8MM = replace(
    AARCH64_DOTPROD,
    name="aarch64-i8mm",
    features="+neon,+dotprod,+i8mm",
    requires=frozenset({"dotprod", "i8mm"}),
    tiles=(SMMLA, SDOT, PAIRS),
)
ARMV7 = Arm32Target(
    name="armv7",
    triple="armv7-unknown-linux-gnueabihf",
    cpu="cortex-a7",
    features="+neon,+vfp4",
    float_features="+vfp4,-neon",
    register_bits=128,
    registers=16,
    has_fma=True,
    activation_bias=0,
    tiles=(VMLAL, PAIRS),
    model=EMBEDDED,
    pointer_bytes=4,
)
CORTEX_M4 = MicrocontrollerTarget(
    name="cortex-m4",
    triple="thumbv7em-unknown-none-eabihf",
    cpu="cortex-m4",
    features="",
    requires=frozenset({"vfp"}),
    register_bits=128,
    registers=4,
    loop_unroll=1,
    has_fma=True,
    activation_bias=0,
    tiles=(SMLAD,),
    model=SCALAR,
    loop_lanes=4,
    table_lanes=4,
    relocation="static",
    pointer_bytes=4,
    interleaves=False,
    narrow=NarrowWeights.ONCE,
)
CORTEX_M7 = replace(CORTEX_M4, name="cortex-m7", cpu="cortex-m7")
CORTEX_M33 = replace(
    CORTEX_M4, name="cortex-m33", triple="thumbv8m.main-unknown-none-eabihf", cpu="cortex-m33"
)
CORTEX_M55 = HeliumTarget(
    name="cortex-m55",
    triple="thumbv8.1m.main-unknown-none-eabihf",
    cpu="cortex-m55",
    features="+mve.fp",
    requires=frozenset({"vfp", "mve"}),
    float_features="-mve",
    register_bits=128,
    registers=8,
    has_fma=True,
    activation_bias=0,
    tiles=(VMLADAVA, PAIRS),
    model=HELIUM,
    loop_lanes=4,
    loop_unroll=1,
    table_lanes=16,
    relocation="static",
    pointer_bytes=4,
    interleaves=False,
    narrow=NarrowWeights.ONCE,
)
CORTEX_M3 = SoftFloatTarget(
    name="cortex-m3",
    triple="thumbv7m-unknown-none-eabi",
    cpu="cortex-m3",
    features="",
    register_bits=128,
    registers=4,
    loop_unroll=1,
    has_fma=False,
    activation_bias=0,
    tiles=(PAIRS,),
    model=SCALAR,
    loop_lanes=4,
    table_lanes=4,
    relocation="static",
    pointer_bytes=4,
    interleaves=False,
    narrow=NarrowWeights.ALL,
)
CORTEX_M0PLUS = replace(
    CORTEX_M3, name="cortex-m0plus", triple="thumbv6m-unknown-none-eabi", cpu="cortex-m0plus"
)

_LINUX = (
    (AARCH64, "64-bit Arm with NEON"),
    (AARCH64_DOTPROD, "64-bit Arm with dot products of int8"),
    (AARCH64_I8MM, "64-bit Arm with dot products and matrix products of int8"),
)
_OTHER = (
    (ARMV7, "32-bit Arm with NEON, such as Cortex-A7"),
    (CORTEX_M0PLUS, "Cortex-M0+: no float unit"),
    (CORTEX_M3, "Cortex-M3: no float unit"),
    (CORTEX_M4, "Cortex-M4 with a float unit"),
    (CORTEX_M7, "Cortex-M7 with a float unit"),
    (CORTEX_M33, "Cortex-M33 with a float unit"),
    (CORTEX_M55, "Cortex-M55 with vectors (MVE)"),
)

TARGETS: Mapping[str, DescribedTarget] = {
    **{machine.name: NativeTarget(machine, summary) for machine, summary in _LINUX},
    **{machine.name: DescribedTarget(machine, summary) for machine, summary in _OTHER},
}
