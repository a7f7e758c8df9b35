"""Table of the x86-64 targets by name."""

from __future__ import annotations

from collections.abc import Mapping

from qglow.targets.native.target import NativeTarget
from qglow.targets.x86.isas import (
    AMX,
    AMX_EMULATED,
    AVX2,
    AVX512_VBMI,
    AVX512_VNNI,
    AVX_VNNI,
    GENERIC,
    X86_64_AMX,
    X86_64_V2,
    X86_64_V3,
    X86_64_V4,
    X86_64_VNNI,
)

_SUMMARIES = (
    (GENERIC, "any x86-64 processor: 128-bit registers, no fused multiply-add"),
    (AVX2, "AVX2 and FMA: 256-bit registers"),
    (AVX_VNNI, "AVX2 with dot products of int8"),
    (AVX512_VNNI, "AVX-512 with dot products of int8"),
    (AVX512_VBMI, "AVX-512 with dot products and byte permutes"),
    (AMX, "AMX: tiles of 16 x 16 sums, beside AVX-512"),
    (X86_64_V2, "level 2 of x86-64, for bundles: SSE4.2"),
    (X86_64_V3, "level 3 of x86-64, for bundles: AVX2 and FMA"),
    (X86_64_V4, "level 4 of x86-64, for bundles: AVX-512"),
    (X86_64_VNNI, "level 4 of x86-64 with dot products of int8, for bundles"),
    (X86_64_AMX, "level 4 of x86-64 with AMX tiles, for bundles"),
    (AMX_EMULATED, "AMX on memory instead of tiles, for tests on AVX-512"),
)

TARGETS: Mapping[str, NativeTarget] = {
    target.name: NativeTarget(target, summary) for target, summary in _SUMMARIES
}
