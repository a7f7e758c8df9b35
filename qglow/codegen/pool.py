"""The code that threads wait in for work, and that a call enters to have their help.

    void* qglow_worker(u8* pool)           the life of a thread; give it to pthread_create
    i32   qglow_launch(u8* pool, i64* job) run a job: 0 when done, 1 where threads must be started
    void  qglow_stop(u8* pool)             all threads leave

A job is six words: the program's entries for one thread and for a team, arena, weights,
placeholders, and the number of threads. One job runs at a time; whoever comes meanwhile runs
its own on one thread. Waiting threads look for work for a short while and then sleep.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from qglow.codegen.atomics import Words
from qglow.codegen.team import LINE, POSITION, TEAM_BYTES, THREADS
from qglow.kernels.builder import I32, I64, PTR, VOID, Emitter, Value
from qglow.kernels.isa import GENERIC

LOCK = TEAM_BYTES
"""u32: 1 while a job runs."""
GENERATION = LOCK + LINE
"""u32: counts jobs, twice each: odd while there is one to join."""
IDLE = GENERATION + 4
"""u32: threads that sleep until it changes."""
STOP = GENERATION + 8
"""u32: 1 when threads are to end."""
INSIDE = GENERATION + LINE
"""u32: threads that are in the job, beside the one that launched it."""
LEAVING = INSIDE + 4
"""u32: 1 while that one sleeps until they have left."""
SEATS = INSIDE + 8
"""u32: threads that came for the job."""
JOB = INSIDE + LINE
"""The job, six words."""
WORKERS = JOB + LINE
"""u32: threads that have been started."""
POOL_BYTES = WORKERS + LINE

SERIAL, SHARED, ARENA, WEIGHTS, TABLE, COUNT = range(6)
JOB_WORDS = 6
LAUNCH, WORKER, STOPPER = "qglow_launch", "qglow_worker", "qglow_stop"
SPIN_CYCLES = 130_000
"""About 50 microseconds: what lies between two calls in a busy loop."""


def pool_module() -> str:
    """The LLVM text."""
    module = ir.Module("pool")
    module.triple = GENERIC.triple
    _define_worker(_function(module, WORKER, PTR, [PTR]))
    _define_launch(_function(module, LAUNCH, I32, [PTR, PTR]))
    _define_stop(_function(module, STOPPER, VOID, [PTR]))
    return str(module)


def _function(module: Any, name: str, result: Value, kinds: list[Value]) -> Emitter:
    function = ir.Function(module, ir.FunctionType(result, kinds), name)
    function.attributes.add("nounwind")
    return Emitter(function, GENERIC)


def _i32(value: int) -> Value:
    return ir.Constant(I32, value)


def _call_shared(e: Emitter, pool: Value, me: Value) -> None:
    """Take part in the pool's job."""
    words = [e.load(e.offset(pool, JOB + 8 * i), PTR) for i in (SHARED, ARENA, WEIGHTS, TABLE)]
    kind = ir.FunctionType(VOID, [PTR, PTR, PTR, PTR, I64])
    e.b.call(_Callee(words[0], kind), [*words[1:], pool, me])


class _Callee(ir.Value):  # type: ignore[misc]
    """An address with the type of the function there, which llvmlite asks of what it calls."""

    def __init__(self, address: Value, kind: Value) -> None:
        self.type, self.function_type = address.type, kind
        self._address = address

    def get_reference(self) -> str:
        """The address."""
        return str(self._address.get_reference())


def _define_worker(e: Emitter) -> None:
    (pool,) = e.function.args
    words = Words(e)
    generation, inside = e.offset(pool, GENERATION), e.offset(pool, INSIDE)
    wait, look, fresh, join, end = (
        e.b.append_basic_block(name) for name in ("wait", "look", "fresh", "join", "end")
    )
    entry = e.b.block
    e.b.branch(wait)

    e.b.position_at_end(wait)
    seen = e.b.phi(I32)
    seen.add_incoming(_i32(0), entry)
    words.wait_while(generation, seen, e.offset(pool, IDLE), SPIN_CYCLES)
    e.b.branch(look)

    e.b.position_at_end(look)
    now = words.load(generation)
    stopped = e.b.icmp_unsigned("!=", words.load(e.offset(pool, STOP)), _i32(0))
    e.b.cbranch(stopped, end, fresh)

    e.b.position_at_end(fresh)
    is_open = e.b.icmp_unsigned("==", e.b.and_(now, _i32(1)), _i32(1))
    seen.add_incoming(now, e.b.block)
    e.b.cbranch(is_open, join, wait)

    e.b.position_at_end(join)
    words.add(inside, 1)
    # The launcher closes the job before it looks who is inside, so it sees this thread or is seen.
    with e.when(e.b.icmp_unsigned("==", words.load(generation), now)):
        seat = e.b.add(words.add(e.offset(pool, SEATS), 1), _i32(1))
        threads = e.load(e.offset(pool, THREADS), I32)
        with e.when(e.b.icmp_unsigned("<", seat, threads)):
            _call_shared(e, pool, e.b.zext(seat, I64))
    words.add(inside, -1)
    words.wake(inside, e.offset(pool, LEAVING))
    seen.add_incoming(now, e.b.block)
    e.b.branch(wait)

    e.b.position_at_end(end)
    e.b.ret(ir.Constant(PTR, None))


def _define_launch(e: Emitter) -> None:
    pool, job = e.function.args
    words, lock = Words(e), e.offset(pool, LOCK)
    own, open_, hire, run = (e.b.append_basic_block(name) for name in ("own", "open", "hire", "run"))
    count = e.load(e.offset(job, 8 * COUNT), I64)
    e.b.cbranch(words.replace(lock, _i32(0), _i32(1)), open_, own)

    e.b.position_at_end(own)
    serial = [e.load(e.offset(job, 8 * i), PTR) for i in (SERIAL, ARENA, WEIGHTS, TABLE)]
    e.b.call(_Callee(serial[0], ir.FunctionType(VOID, [PTR, PTR, PTR])), serial[1:])
    e.b.ret(_i32(0))

    e.b.position_at_end(open_)
    workers = e.b.zext(e.load(e.offset(pool, WORKERS), I32), I64)
    e.b.cbranch(e.b.icmp_unsigned("<", e.b.add(workers, ir.Constant(I64, 1)), count), hire, run)

    e.b.position_at_end(hire)
    words.set(lock, _i32(0))
    e.b.ret(_i32(1))

    e.b.position_at_end(run)
    for i in range(JOB_WORDS):
        e.store(e.load(e.offset(job, 8 * i), I64), e.offset(pool, JOB + 8 * i))
    e.store(e.b.trunc(count, I32), e.offset(pool, THREADS))
    e.store(_i32(0), e.offset(pool, SEATS))
    e.store(ir.Constant(I64, 0), e.offset(pool, POSITION))
    generation = e.offset(pool, GENERATION)
    words.add(generation, 1)
    helpers = e.b.sub(e.b.trunc(count, I32), _i32(1))
    words.wake(generation, e.offset(pool, IDLE), helpers)
    _call_shared(e, pool, ir.Constant(I64, 0))
    words.add(generation, 1)
    _wait_until_alone(e, words, pool)
    words.set(lock, _i32(0))
    e.b.ret(_i32(0))


def _wait_until_alone(e: Emitter, words: Words, pool: Value) -> None:
    inside = e.offset(pool, INSIDE)
    look, wait, alone = (e.b.append_basic_block(name) for name in ("crowd", "leave", "alone"))
    e.b.branch(look)
    e.b.position_at_end(look)
    count = words.load(inside)
    e.b.cbranch(e.b.icmp_unsigned("!=", count, _i32(0)), wait, alone)
    e.b.position_at_end(wait)
    words.wait_while(inside, count, e.offset(pool, LEAVING), SPIN_CYCLES)
    e.b.branch(look)
    e.b.position_at_end(alone)


def _define_stop(e: Emitter) -> None:
    (pool,) = e.function.args
    words, generation = Words(e), e.offset(pool, GENERATION)
    words.set(e.offset(pool, STOP), _i32(1))
    words.add(generation, 2)
    words.wake(generation, e.offset(pool, IDLE))
    e.b.ret_void()
