"""What a processor offers: LLVM target features, register sizes and matrix tiles, as data."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from llvmlite import binding

from qglow.core.errors import UsageError

ENVIRONMENT_VARIABLE = "QGLOW_ISA"
ACTIVATION_BIAS = 128
"""Added to every int8 activation in memory: VNNI multiplies unsigned by signed bytes."""


@dataclass(frozen=True, slots=True)
class Tile:
    """One matrix instruction: m x n sums of k products each.

    `lhs` and `rhs` are the operands' element types ("u8", "s8", "s16", "f32"); `packing` names
    the order of weights in memory: groups of `k` along K stay together, then `n` columns.
    """

    name: str
    m: int
    n: int
    k: int
    lhs: str
    rhs: str
    packing: str


@dataclass(frozen=True, slots=True)
class Isa:
    """A target. `requires` are the host features (LLVM's names) without which code crashes.

    Without `has_fma` float chains multiply and add, within a declared tolerance. `emulates_amx`
    replaces tile instructions by functions over memory, for tests on other hosts.
    """

    name: str
    cpu: str
    features: str
    requires: frozenset[str]
    vector_bits: int
    registers: int
    has_fma: bool
    tiles: tuple[Tile, ...]
    activation_bias: int = ACTIVATION_BIAS
    emulates_amx: bool = False
    triple: str = "x86_64-unknown-linux-gnu"

    @property
    def float_lanes(self) -> int:
        """float32 elements of one register."""
        return self.vector_bits // 32

    @property
    def byte_lanes(self) -> int:
        """Bytes of one register."""
        return self.vector_bits // 8

    @property
    def is_avx512(self) -> bool:
        """Whether there are 512-bit registers and mask registers."""
        return "avx512bw" in self.requires

    def has(self, feature: str) -> bool:
        """Whether code for this target may use a feature (LLVM's name for it)."""
        return feature in self.requires

    def tile(self, name: str) -> Tile | None:
        """The tile of this name, if the target has it."""
        return next((tile for tile in self.tiles if tile.name == name), None)


_PMADDWD = Tile("pmaddwd", 1, 4, 2, "s16", "s16", "k2")
_VPMADDWD = replace(_PMADDWD, name="vpmaddwd", n=8)
_VPDPBUSD = Tile("vpdpbusd", 1, 16, 4, "u8", "s8", "k4")
_VEX_VPDPBUSD = replace(_VPDPBUSD, n=8)
_TDPBUSD = Tile("tdpbusd", 16, 16, 64, "u8", "s8", "k4")

_V3 = frozenset({"avx2", "fma", "bmi", "bmi2", "f16c", "lzcnt", "movbe"})
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_AVX_VNNI = _V3 | {"avxvnni"}
_VNNI = _V4 | {"avx512vnni"}
_VBMI = _VNNI | {"avx512vbmi"}
_AMX = _VBMI | {"amx-tile", "amx-int8"}

GENERIC = Isa("generic", "x86-64", "", frozenset(), 128, 16, False, (_PMADDWD,))
AVX2 = Isa("avx2", "x86-64-v3", "", _V3, 256, 16, True, (_VPMADDWD,))
AVX_VNNI = Isa("avxvnni", "x86-64-v3", "+avxvnni", _AVX_VNNI, 256, 16, True, (_VEX_VPDPBUSD,))
AVX512_VNNI = Isa("avx512vnni", "x86-64-v4", "+avx512vnni", _VNNI, 512, 32, True, (_VPDPBUSD,))
AVX512_VBMI = replace(AVX512_VNNI, name="avx512vbmi", features="+avx512vnni,+avx512vbmi", requires=_VBMI)
AMX = Isa(
    "amx",
    "x86-64-v4",
    "+avx512vnni,+avx512vbmi,+amx-tile,+amx-int8",
    _AMX,
    512,
    32,
    True,
    (_TDPBUSD, _VPDPBUSD),
)
AMX_EMULATED = replace(AVX512_VNNI, name="amx-emulated", tiles=(_TDPBUSD, _VPDPBUSD), emulates_amx=True)

ISAS: tuple[Isa, ...] = (GENERIC, AVX2, AVX_VNNI, AVX512_VNNI, AVX512_VBMI, AMX)
"""Slowest first. The emulated one is for tests and never selected on its own."""


def isa_by_name(name: str) -> Isa:
    """The target of this name, whether or not the host can run it. Raises UsageError."""
    for isa in (*ISAS, AMX_EMULATED):
        if isa.name == name:
            return isa
    raise UsageError(f"no ISA is called '{name}'; there are {', '.join(isa.name for isa in ISAS)}")


def host_features() -> frozenset[str]:
    """Features of the processor that this runs on, by LLVM's names."""
    return frozenset(name for name, present in binding.get_host_cpu_features().items() if present)


def host_isas(emulated: bool = False) -> list[Isa]:
    """Targets whose code runs here, slowest first; with `emulated`, also AMX by emulation."""
    if binding.get_process_triple().split("-")[0] != "x86_64":
        return []
    present = host_features()
    isas = [isa for isa in ISAS if isa.requires <= present]
    if emulated and AMX_EMULATED.requires <= present:
        isas.append(AMX_EMULATED)
    return isas


def select_isa(name: str | None = None) -> Isa:
    """The named target, or the one in QGLOW_ISA, or the best that the host has.

    Raises UsageError for an unknown name and for one that the host cannot run.
    """
    available = host_isas(emulated=True)
    wanted = name or os.environ.get(ENVIRONMENT_VARIABLE)
    if wanted:
        isa = isa_by_name(wanted)
        if isa not in available:
            raise UsageError(f"this host cannot run ISA '{wanted}'; it has {_names(host_isas())}")
        return isa
    if not available:
        raise UsageError("this host is no x86-64 machine, and there are kernels for no other yet")
    return host_isas()[-1]


def _names(isas: list[Isa]) -> str:
    return ", ".join(isa.name for isa in isas) or "none"
