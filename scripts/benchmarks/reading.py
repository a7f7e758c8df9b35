"""A function that reads memory and does nothing else, to time beside programs that read as much."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor

from llvmlite import ir

from qglow.codegen.jit import link
from qglow.codegen.memory import ALIGNMENT, aligned_bytes
from qglow.codegen.target import object_code
from qglow.kernels.emit.builder import I64, PTR, VOID, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.target import VectorTarget
from qglow.report.bench import Contender

ENTRY = "qglow_read"
VECTORS = 8
"""Vectors of one turn, each with a sum of its own, so that none waits for another."""
_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


def reader(target: VectorTarget, size: int, threads: int = 1) -> Contender:
    """A call that reads about `size` bytes of its own memory once, in ascending order, shared by threads."""
    turn = VECTORS * target.byte_lanes
    turns = max(1, size // turn // threads)
    parts = [aligned_bytes(ALIGNMENT + turns * turn) for _ in range(threads)]
    for part in parts:
        part[:] = 1
    linked = link([object_code(_text(target), target)], target, [ENTRY])
    call, addresses = _PROTOTYPE(linked.addresses[ENTRY]), [part.ctypes.data for part in parts]
    others = ThreadPoolExecutor(max(1, threads - 1))

    def read() -> None:
        waiting = [others.submit(call, address, turns) for address in addresses[1:]]
        call(addresses[0], turns)
        for each in waiting:
            each.result()

    read.__dict__["keep"] = (parts, linked)
    return read


def _text(target: VectorTarget) -> str:
    """LLVM text of `void qglow_read(u8* memory, i64 turns)`, which keeps a sum in the first bytes."""
    module = ir.Module("read")
    module.triple = target.triple
    function = ir.Function(module, ir.FunctionType(VOID, [PTR, I64]), ENTRY)
    e = Emitter(function, target)
    memory, turns = function.args
    kind, size = vec(I64, target.byte_lanes // 8), target.byte_lanes
    start = e.offset(memory, ALIGNMENT)
    with e.carrying_loop(0, turns, [scalar(kind, 0)] * VECTORS, name="turn") as carry:
        place = e.offset(start, e.scaled(carry.index, VECTORS * size))
        loaded = [e.load(e.offset(place, number * size), kind) for number in range(VECTORS)]
        carry.next([e.b.add(total, x) for total, x in zip(carry.values, loaded, strict=True)])
    total = carry.values[0]
    for other in carry.values[1:]:
        total = e.b.add(total, other)
    e.store(total, memory)
    e.b.ret_void()
    return str(module)
