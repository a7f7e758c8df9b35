"""The most products that an instruction set does in a time, measured on this processor.

A tile of accumulators in registers, like that of a kernel, takes operands from two cache lines again
and again: nothing but multiply-adds. The same code gives the time of a tick of the counter that timed
programs read.
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
from qglow.kernels.amx import Registers
from qglow.kernels.builder import I64, PTR, VOID, Emitter, Index
from qglow.kernels.isa import Isa
from qglow.kernels.tile import MicroTile, fastest_tile

ENTRY = "qglow_peak"
VECTORS = 2
AMX_SUMS, AMX_PRODUCTS = 4, 16 * 16 * 64
SHORTEST_NS = 2_000_000
"""A run must last this long for its time to be known well."""
REPEATS = 5
_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


@dataclass(frozen=True, slots=True)
class Peak:
    """Multiply-adds in a nanosecond on one thread, and nanoseconds a tick of the processor's counter."""

    products_per_ns: float
    ns_per_tick: float


def measure_peak(isa: Isa, is_float: bool = False) -> Peak:
    """Measure on int8 or float32, some 20 milliseconds long.

    The best of a few runs, because everything else only slows down. Raises UsageError where the host
    cannot run the ISA.
    """
    check_host(isa)
    text, products, size = peak_module(isa, is_float)
    linked = link([object_code(text, isa)], isa, [ENTRY])
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


def peak_module(isa: Isa, is_float: bool) -> tuple[str, int, int]:
    """LLVM text of `void qglow_peak(u8* memory, i64 turns)`, products of a turn, bytes of memory.

    The ticks that it took are stored in the first eight bytes.
    """
    module = ir.Module("peak")
    module.triple = isa.triple
    function = ir.Function(module, ir.FunctionType(VOID, [PTR, I64]), ENTRY)
    e = Emitter(function, isa)
    memory, turns = function.args
    before = e.call("llvm.readcyclecounter", I64, [])
    operands = e.offset(memory, ALIGNMENT)
    if isa.tile("tdpbusd") is not None and not is_float:
        products, size = _emit_matrix_products(e, turns), 2 * ALIGNMENT
    else:
        products, size = _emit_vector_products(e, fastest_tile(isa, is_float), operands, turns)
    e.store(e.b.sub(e.call("llvm.readcyclecounter", I64, []), before), memory)
    e.b.ret_void()
    return str(module), products, size


def _emit_matrix_products(e: Emitter, turns: Index) -> int:
    registers = Registers(e)
    registers.configure([16] * 8)
    with e.loop(0, turns, name="turn"):
        for number in range(AMX_SUMS):
            registers.multiply(number, 4 + number // 2, 6 + number % 2)
    registers.release()
    return AMX_SUMS * AMX_PRODUCTS


def _emit_vector_products(e: Emitter, tile: MicroTile, memory: Any, turns: Index) -> tuple[int, int]:
    """Operands change their places from turn to turn, or LLVM would multiply once for all."""
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
