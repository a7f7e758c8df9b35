"""Prefetching of weights that are read soon."""

from __future__ import annotations

from llvmlite import ir

from qglow.kernels.emit.builder import I32, VOID, Index, Value
from qglow.kernels.emit.emitter import Emitter


def fetch_early(e: Emitter, weights: Value, ahead: Index, lines: int, first_level: bool = False) -> None:
    """Prefetch `lines` cache lines, `ahead` bytes after `weights`, into the second-level cache or the first.

    Addresses outside of all memory are allowed: a prefetch of them has no effect.
    """
    for line in range(lines):
        place = e.offset(weights, e.plus(ahead, line * e.target.model.line_bytes))
        read, level, data = (ir.Constant(I32, value) for value in (0, 3 if first_level else 2, 1))
        e.call("llvm.prefetch.p0", VOID, [place, read, level, data])
