"""The levels of x86-64 that code is made for."""

from __future__ import annotations

from dataclasses import replace

from qglow.codegen.host import lacking
from qglow.core.errors import UsageError
from qglow.targets.x86.amx_kernels import AMX_KERNELS
from qglow.targets.x86.description import ACTIVATION_BIAS, TRIPLE, X86Target
from qglow.targets.x86.listed import LISTED_KERNELS
from qglow.targets.x86.machine import SERVER, TABLES_FROM
from qglow.targets.x86.multiplications import PMADDWD, TDPBUSD, VEX_VPDPBUSD, VPDPBUSD, VPMADDUBSW, VPMADDWD

_V2 = frozenset({"sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16"})
_V3 = frozenset({"avx2", "fma", "bmi", "bmi2", "f16c", "lzcnt", "movbe"})
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_AVX_VNNI = _V3 | {"avxvnni"}
_VNNI = _V4 | {"avx512vnni"}
_VBMI = _VNNI | {"avx512vbmi"}
_AMX = _VBMI | {"amx-tile", "amx-int8"}

GENERIC = X86Target(
    name="generic",
    triple=TRIPLE,
    cpu="x86-64",
    features="",
    register_bits=128,
    registers=16,
    has_fma=False,
    rounds_chains_once=False,
    activation_bias=ACTIVATION_BIAS,
    tiles=(PMADDWD,),
    model=SERVER,
)
AVX2 = replace(
    GENERIC,
    name="avx2",
    cpu="x86-64-v3",
    requires=_V3,
    register_bits=256,
    has_fma=True,
    rounds_chains_once=True,
    converts_half=True,
    tiles=(VPMADDUBSW, VPMADDWD),
    plainest=GENERIC,
    more_kernels=LISTED_KERNELS,
)
AVX_VNNI = replace(
    AVX2,
    name="avxvnni",
    features="+avxvnni",
    requires=_AVX_VNNI,
    tiles=(VEX_VPDPBUSD,),
    more_kernels=GENERIC.more_kernels,
)
AVX512_VNNI = replace(
    AVX_VNNI,
    name="avx512vnni",
    cpu="x86-64-v4",
    features="+avx512vnni",
    requires=_VNNI,
    register_bits=512,
    registers=32,
    tiles=(VPDPBUSD,),
)
AVX512_VBMI = replace(
    AVX512_VNNI,
    name="avx512vbmi",
    features="+avx512vnni,+avx512vbmi",
    requires=_VBMI,
    fuses_tables_from=TABLES_FROM,
)
AMX = replace(
    AVX512_VNNI,
    name="amx",
    features="+avx512vnni,+avx512vbmi,+amx-tile,+amx-int8",
    requires=_AMX,
    tiles=(TDPBUSD, VPDPBUSD),
    more_kernels=AMX_KERNELS,
)
# Emulated tiles are globals of a module, so threads may not share a program.
AMX_EMULATED = replace(
    AVX512_VNNI,
    name="amx-emulated",
    tiles=AMX.tiles,
    more_kernels=AMX_KERNELS,
    emulates_amx=True,
    shares_work=False,
)

# By the names of the levels that compilers and Linux distributions use.
X86_64_V2 = replace(GENERIC, name="x86-64-v2", cpu="x86-64-v2", requires=_V2, rounds_chains_once=True)
X86_64_V3 = replace(AVX2, name="x86-64-v3")
X86_64_V4 = replace(AVX2, name="x86-64-v4", cpu="x86-64-v4", requires=_V4)
X86_64_VNNI = replace(AVX512_VNNI, name="x86-64-vnni")
X86_64_AMX = replace(AMX, name="x86-64-amx")

LEVELS: tuple[X86Target, ...] = (X86_64_V2, X86_64_V3, X86_64_V4, X86_64_VNNI, X86_64_AMX)
"""Targets of bundles."""

ISAS: tuple[X86Target, ...] = (GENERIC, AVX2, AVX_VNNI, AVX512_VNNI, AVX512_VBMI, AMX)
"""Slowest first. The emulated one is for tests and never selected on its own."""


def isa_by_name(name: str) -> X86Target:
    """The target of this name, whether or not the host can run it. Raises UsageError."""
    for target in (*ISAS, *LEVELS, AMX_EMULATED):
        if target.name == name:
            return target
    raise UsageError(f"no target is called '{name}'; there are {', '.join(target.name for target in ISAS)}")


def host_isas(emulated: bool = False) -> list[X86Target]:
    """Targets whose code runs here, slowest first; with `emulated`, also AMX by emulation."""
    return [target for target in (*ISAS, *([AMX_EMULATED] if emulated else ())) if lacking(target) is None]
