"""The levels of WebAssembly that code is made for.

Instructions: WebAssembly Core Specification, release 2.0. Floats never depend on an environment there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from qglow.kernels.emit.builder import Builder, Value
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.emit.tiles import Tile, lane_products
from qglow.targets.native.described import DescribedTarget
from qglow.targets.portable.description import EMBEDDED, PAIRS, round_by_instruction

_BASE = "+bulk-memory,+sign-ext,+nontrapping-fptoint,+mutable-globals"


def _dot(e: Builder, sums: Value, lhs: Value, rhs: Value) -> Value:
    """i32x4.dot_i16x8_s: both products of 16 bits of each lane, added."""
    if sums.type.count != 4:
        given = [_halves(e, value) for value in (sums, lhs, rhs)]
        return e.concat([_dot(e, *half) for half in zip(*given, strict=True)])
    return e.b.add(sums, e.call("llvm.wasm.dot", sums.type, [lhs, rhs]))


def _halves(e: Builder, value: Value) -> list[Value]:
    middle = value.type.count // 2
    return [e.shuffle(value, None, range(first, first + middle)) for first in (0, middle)]


DOT = Tile("i32x4.dot_i16x8_s", 1, 4, 2, "s16", "s16", lane_products, _dot)


@dataclass(frozen=True)
class WasmTarget(VectorTarget):
    """WebAssembly with 32-bit addresses."""

    def round_to_words(self, e: Builder, value: Value) -> Value:
        """Round with f32.nearest, which ties to even."""
        return round_by_instruction(e, value)


WASM32 = WasmTarget(
    name="wasm32",
    triple="wasm32-unknown-unknown",
    cpu="generic",
    features=_BASE,
    register_bits=128,
    registers=8,
    has_fma=False,
    activation_bias=0,
    tiles=(PAIRS,),
    model=EMBEDDED,
    loop_lanes=4,
    table_lanes=4,
    relocation="static",
    pointer_bytes=4,
    interleaves=False,
)
WASM32_SIMD128 = replace(
    WASM32,
    name="wasm32-simd128",
    features=f"{_BASE},+simd128",
    registers=16,
    interleaves=True,
    tiles=(DOT,),
    loop_lanes=16,
    table_lanes=16,
)

TARGETS: Mapping[str, DescribedTarget] = {
    "wasm32": DescribedTarget(WASM32, "WebAssembly without vectors"),
    "wasm32-simd128": DescribedTarget(WASM32_SIMD128, "WebAssembly with vectors of 128 bits"),
}
