"""Peak rate of multiply-adds of an instruction set, measured on this processor.

A tile of accumulators in registers, like that of a kernel, takes its operands from the same few cache
lines again and again, so that nothing but multiply-adds takes time. The same code measures the length of
a tick of the counter that timed programs read.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from qglow.codegen.jit import check_host, link
from qglow.codegen.memory import ALIGNMENT, aligned_bytes
from qglow.codegen.target import object_code
from qglow.kernels.emit.builder import I64, PTR, VOID, Index
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.tiles.tile import MicroTile, fastest_tile

ENTRY = "qglow_peak"
VECTORS = 2
SHORTEST_NS = 2_000_000
"""Nanoseconds that a run must last to be timed precisely."""
REPEATS = 5
_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


@dataclass(frozen=True, slots=True)
class Peak:
    """Multiply-adds in a nanosecond on one thread, and nanoseconds a tick of the processor's counter."""

    products_per_ns: float
    ns_per_tick: float


def measure_peak(target: VectorTarget, is_float: bool = False) -> Peak:
    """Measure the peak of int8 or float32 products, which takes some 20 milliseconds.

    The best of several runs counts, because disturbances only slow a run down. Raises UsageError if the
    host cannot run the ISA.
    """
    check_host(target)
    text, products, size = peak_module(target, is_float)
    linked = link([object_code(text, target)], target, [ENTRY])
    call = _PROTOTYPE(linked.addresses[ENTRY])
    memory = aligned_bytes(size)
    ticks = memory[:8].view("u8")
    turns, taken = 1, 0
    while taken < SHORTEST_NS:
        turns *= 2
        taken = _run(call, memory.ctypes.data, turns)
    best, pace = taken, taken / int(ticks[0])
    for _ in range(REPEATS):
        taken = _run(call, memory.ctypes.data, turns)
        if taken < best:
            best, pace = taken, taken / int(ticks[0])
    return Peak(products * turns / best, pace)


def _run(call: Any, memory: int, turns: int) -> int:
    start = time.perf_counter_ns()
    call(memory, turns)
    return time.perf_counter_ns() - start


def peak_module(target: VectorTarget, is_float: bool) -> tuple[str, int, int]:
    """LLVM text of `void qglow_peak(u8* memory, i64 turns)`, products in a turn, bytes of memory.

    The function stores the ticks that it took in the first eight bytes of memory.
    """
    module = ir.Module("peak")
    module.triple = target.triple
    function = ir.Function(module, ir.FunctionType(VOID, [PTR, I64]), ENTRY)
    e = Emitter(function, target)
    memory, turns = function.args
    before = target.cycles(e)
    operands = e.offset(memory, ALIGNMENT)
    found = None if is_float else target.matrix_peak(e, turns)
    if found is None:
        found = _emit_vector_products(e, fastest_tile(target, is_float), operands, turns)
    products, size = found
    e.store(e.b.sub(target.cycles(e), before), memory)
    e.b.ret_void()
    return str(module), products, size


def _emit_vector_products(e: Emitter, tile: MicroTile, memory: Any, turns: Index) -> tuple[int, int]:
    """Emit the loop over vector products; returns products in a turn and bytes of memory.

    Operands alternate between turns, or LLVM would hoist the multiplications out of the loop.
    """
    step = tile.weight_bytes
    held = len(tile.load_weights(e, memory))
    pixels = (tile.registers - VECTORS * held - 2) // VECTORS
    sums = memory
    kind, size = tile.accumulator, tile.accumulator_bytes
    places = [e.offset(sums, number * size) for number in range(pixels * VECTORS)]
    with e.carrying_loop(0, turns, [e.load(place, kind, align=4) for place in places], name="turn") as carry:
        start = e.offset(memory, e.scaled(e.b.and_(carry.index, e.index(1)), step))
        weights = [tile.load_weights(e, e.offset(start, vector * step)) for vector in range(VECTORS)]
        results = []
        for pixel in range(pixels):
            activation = tile.load_weights(e, e.offset(start, (VECTORS + pixel) * step))
            for vector in range(VECTORS):
                total = carry.values[pixel * VECTORS + vector]
                results.append(tile.accumulate(e, total, activation, weights[vector]))
        carry.next(results)
    for place, total in zip(places, carry.values, strict=True):
        e.store(total, place, align=4)
    used = max(len(places) * size, (VECTORS + pixels + 1) * step)
    per_step = 1 if tile.is_float else 4
    return len(places) * tile.lanes * per_step, ALIGNMENT + used
