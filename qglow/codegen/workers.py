"""Code of worker threads, which wait for jobs, and of the call that has a job done with their help.

    void* qglow_worker(u8* crew)           the life of a thread; give it to pthread_create
    i32   qglow_launch(u8* crew, i64* job) run a job: 0 when done, 1 where threads must be started
    void  qglow_stop(u8* crew)             all threads leave

A job is six words: the program's entries for one thread and for a team, arena, weights,
placeholders, and the number of threads. One job runs at a time; a call that comes meanwhile runs
its job on one thread. Waiting threads spin for a short while and then sleep.
"""

from __future__ import annotations

from llvmlite import ir

from qglow.codegen.atomics import Words
from qglow.codegen.team import LINE, POSITION, TEAM_BYTES, THREADS
from qglow.kernels.emit.builder import I32, I64, PTR, VOID, Value
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.target import VectorTarget

LOCK = TEAM_BYTES
"""u32: 1 while a job runs."""
GENERATION = LOCK + LINE
"""u32: grows by two with each job; odd while there is a job to join."""
IDLE = GENERATION + 4
"""u32: threads that sleep until GENERATION changes."""
STOP = GENERATION + 8
"""u32: 1 when threads are to end."""
INSIDE = GENERATION + LINE
"""u32: threads that work on the job, without the one that launched it."""
LEAVING = INSIDE + 4
"""u32: 1 while the launching thread sleeps until those have left."""
SEATS = INSIDE + 8
"""u32: threads that have joined the job; those beyond its number of threads leave again."""
JOB = INSIDE + LINE
"""The job, six words."""
WORKERS = JOB + LINE
"""u32: threads that have been started."""
WORKERS_BYTES = WORKERS + LINE

SERIAL, SHARED, ARENA, WEIGHTS, TABLE, COUNT = range(6)
JOB_WORDS = 6
LAUNCH, WORKER, STOPPER = "qglow_launch", "qglow_worker", "qglow_stop"


def workers_module(target: VectorTarget) -> str:
    """LLVM text of the three functions."""
    module = ir.Module("workers")
    module.triple = target.triple

    def function(name: str, result: Value, kinds: list[Value]) -> Emitter:
        function = ir.Function(module, ir.FunctionType(result, kinds), name)
        function.attributes.add("nounwind")
        return Emitter(function, target)

    _define_worker(function(WORKER, PTR, [PTR]))
    _define_launch(function(LAUNCH, I32, [PTR, PTR]))
    _define_stop(function(STOPPER, VOID, [PTR]))
    return str(module)


def _i32(value: int) -> Value:
    return ir.Constant(I32, value)


def _call_shared(e: Emitter, crew: Value, me: Value) -> None:
    """Take part in the crew's job."""
    words = [e.load(e.offset(crew, JOB + 8 * i), PTR) for i in (SHARED, ARENA, WEIGHTS, TABLE)]
    kind = ir.FunctionType(VOID, [PTR, PTR, PTR, PTR, I64])
    e.call_address(words[0], kind, [*words[1:], crew, me])


def _define_worker(e: Emitter) -> None:
    (crew,) = e.function.args
    words = Words(e)
    generation, inside = e.offset(crew, GENERATION), e.offset(crew, INSIDE)
    wait, look, fresh, join, end = (
        e.b.append_basic_block(name) for name in ("wait", "look", "fresh", "join", "end")
    )
    entry = e.b.block
    e.b.branch(wait)

    e.b.position_at_end(wait)
    seen = e.b.phi(I32)
    seen.add_incoming(_i32(0), entry)
    words.wait_while(generation, seen, e.offset(crew, IDLE), e.target.model.threads.job_spin_cycles)
    e.b.branch(look)

    e.b.position_at_end(look)
    now = words.load(generation)
    stopped = e.b.icmp_unsigned("!=", words.load(e.offset(crew, STOP)), _i32(0))
    e.b.cbranch(stopped, end, fresh)

    e.b.position_at_end(fresh)
    is_open = e.b.icmp_unsigned("==", e.b.and_(now, _i32(1)), _i32(1))
    seen.add_incoming(now, e.b.block)
    e.b.cbranch(is_open, join, wait)

    e.b.position_at_end(join)
    words.add(inside, 1)
    # The launcher closes the job before it reads INSIDE: it sees this thread, or this one sees the close.
    with e.when(e.b.icmp_unsigned("==", words.load(generation), now)):
        seat = e.b.add(words.add(e.offset(crew, SEATS), 1), _i32(1))
        threads = e.load(e.offset(crew, THREADS), I32)
        with e.when(e.b.icmp_unsigned("<", seat, threads)):
            _call_shared(e, crew, e.b.zext(seat, I64))
    words.add(inside, -1)
    words.wake(inside, e.offset(crew, LEAVING))
    seen.add_incoming(now, e.b.block)
    e.b.branch(wait)

    e.b.position_at_end(end)
    e.b.ret(ir.Constant(PTR, None))


def _define_launch(e: Emitter) -> None:
    crew, job = e.function.args
    words, lock = Words(e), e.offset(crew, LOCK)
    own, open_, hire, run = (e.b.append_basic_block(name) for name in ("own", "open", "hire", "run"))
    count = e.load(e.offset(job, 8 * COUNT), I64)
    e.b.cbranch(words.replace(lock, _i32(0), _i32(1)), open_, own)

    e.b.position_at_end(own)
    serial = [e.load(e.offset(job, 8 * i), PTR) for i in (SERIAL, ARENA, WEIGHTS, TABLE)]
    e.call_address(serial[0], ir.FunctionType(VOID, [PTR, PTR, PTR]), serial[1:])
    e.b.ret(_i32(0))

    e.b.position_at_end(open_)
    workers = e.b.zext(e.load(e.offset(crew, WORKERS), I32), I64)
    e.b.cbranch(e.b.icmp_unsigned("<", e.b.add(workers, ir.Constant(I64, 1)), count), hire, run)

    e.b.position_at_end(hire)
    words.set(lock, _i32(0))
    e.b.ret(_i32(1))

    e.b.position_at_end(run)
    for i in range(JOB_WORDS):
        e.store(e.load(e.offset(job, 8 * i), I64), e.offset(crew, JOB + 8 * i))
    e.store(e.b.trunc(count, I32), e.offset(crew, THREADS))
    e.store(_i32(0), e.offset(crew, SEATS))
    e.store(ir.Constant(I64, 0), e.offset(crew, POSITION))
    generation = e.offset(crew, GENERATION)
    words.add(generation, 1)
    helpers = e.b.sub(e.b.trunc(count, I32), _i32(1))
    words.wake(generation, e.offset(crew, IDLE), helpers)
    _call_shared(e, crew, ir.Constant(I64, 0))
    words.add(generation, 1)
    _wait_until_alone(e, words, crew)
    words.set(lock, _i32(0))
    e.b.ret(_i32(0))


def _wait_until_alone(e: Emitter, words: Words, crew: Value) -> None:
    inside = e.offset(crew, INSIDE)
    look, wait, alone = (e.b.append_basic_block(name) for name in ("crowd", "leave", "alone"))
    e.b.branch(look)
    e.b.position_at_end(look)
    count = words.load(inside)
    e.b.cbranch(e.b.icmp_unsigned("!=", count, _i32(0)), wait, alone)
    e.b.position_at_end(wait)
    words.wait_while(inside, count, e.offset(crew, LEAVING), e.target.model.threads.job_spin_cycles)
    e.b.branch(look)
    e.b.position_at_end(alone)


def _define_stop(e: Emitter) -> None:
    (crew,) = e.function.args
    words, generation = Words(e), e.offset(crew, GENERATION)
    words.set(e.offset(crew, STOP), _i32(1))
    words.add(generation, 2)
    words.wake(generation, e.offset(crew, IDLE))
    e.b.ret_void()
