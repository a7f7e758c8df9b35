"""Threads that run one program together: the memory they share, and the distribution of parts of a step.

Every thread walks through all steps. In a step it takes parts until there are no more, beginning with its
own, so that its cache mostly holds what it wrote before; then it waits until all parts are done. Nobody
waits for a thread that is late: the others take its parts, and when it comes it finds the steps done and
catches up.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from qglow.codegen.atomics import Words
from qglow.kernels.emit.builder import I32, I64, PTR, VOID, Value
from qglow.kernels.emit.emitter import Emitter

MOST_PARTS = 31
"""Most parts that the shared calls of a step are divided into: 32 bits, one of them for other calls."""
LINE = 64
POSITION = 0
"""u64: the number of the step in the upper half, and in the lower a bit for every part that is taken."""
STEP = POSITION + 4
DONE = LINE
"""u32: parts of the step that are done."""
SLEEPERS = DONE + 4
"""u32: threads that sleep until the step is over."""
THREADS = DONE + 8
"""u32: number of threads that may take part."""
TEAM_BYTES = 2 * LINE
NONE = -1


@dataclass(frozen=True)
class Team:
    """Emits the work of thread number `me` with the team whose memory is at `memory`."""

    e: Emitter
    memory: Value
    me: Value

    def parts(self, most: int) -> Value:
        """Number of parts (i64) of a step: at most `most`, and at most one for each thread."""
        e = self.e
        threads = e.b.zext(e.load(e.offset(self.memory, THREADS), I32), I64)
        return e.minimum(threads, min(most, MOST_PARTS))

    def take(self, step: int, parts: Value) -> Value:
        """Take a part of the step (i64); NONE once all parts are done."""
        function = self.e.module.globals.get("qglow_take") or _define_take(self.e)
        return self.e.b.call(function, [self.memory, ir.Constant(I32, step), self.me, parts])

    def finish(self, step: int, parts: Value) -> None:
        """Report a part as done; the last report ends the step."""
        function = self.e.module.globals.get("qglow_finish") or _define_finish(self.e)
        self.e.b.call(function, [self.memory, ir.Constant(I32, step), parts])


def _define(caller: Emitter, name: str, result: Value, kinds: list[Value]) -> Emitter:
    function = ir.Function(caller.module, ir.FunctionType(result, kinds), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    return Emitter(function, caller.target)


def _define_take(caller: Emitter) -> Value:
    e = _define(caller, "qglow_take", I64, [PTR, I32, I64, I64])
    memory, step, me, parts = e.function.args
    words, position = Words(e), e.offset(memory, POSITION)
    look, choose, claim, taken, wait, over = (
        e.b.append_basic_block(name) for name in ("look", "choose", "claim", "taken", "wait", "over")
    )
    one = ir.Constant(I64, 1)
    every = e.b.sub(e.b.shl(one, parts), one)
    own = e.b.urem(me, parts)
    e.b.branch(look)

    e.b.position_at_end(look)
    now = words.load(position, I64)
    here = e.b.trunc(e.b.lshr(now, ir.Constant(I64, 32)), I32)
    e.b.cbranch(e.b.icmp_unsigned("==", here, step), choose, over)

    e.b.position_at_end(choose)
    free = e.b.and_(e.b.not_(now), every)
    e.b.cbranch(e.b.icmp_unsigned("!=", free, ir.Constant(I64, 0)), claim, wait)

    e.b.position_at_end(claim)
    behind = e.b.and_(free, e.b.shl(ir.Constant(I64, -1), own))
    wanted = e.b.select(e.b.icmp_unsigned("!=", behind, ir.Constant(I64, 0)), behind, free)
    part = e.call("llvm.cttz.i64", I64, [wanted, ir.Constant(ir.IntType(1), 1)])
    e.b.cbranch(words.replace(position, now, e.b.or_(now, e.b.shl(one, part))), taken, look)

    e.b.position_at_end(taken)
    e.b.ret(part)

    e.b.position_at_end(wait)
    spin_cycles = e.target.model.threads.step_spin_cycles
    words.wait_while(e.offset(memory, STEP), step, e.offset(memory, SLEEPERS), spin_cycles)
    e.b.branch(look)

    e.b.position_at_end(over)
    e.b.ret(ir.Constant(I64, NONE))
    return e.function


def _define_finish(caller: Emitter) -> Value:
    e = _define(caller, "qglow_finish", VOID, [PTR, I32, I64])
    memory, step, parts = e.function.args
    words, done = Words(e), e.offset(memory, DONE)
    count = e.b.add(words.add(done, 1), ir.Constant(I32, 1))
    with e.when(e.b.icmp_unsigned("==", e.b.zext(count, I64), parts)):
        words.set(done, ir.Constant(I32, 0))
        following = e.b.zext(e.b.add(step, ir.Constant(I32, 1)), I64)
        words.set(e.offset(memory, POSITION), e.b.shl(following, ir.Constant(I64, 32)))
        words.wake(e.offset(memory, STEP), e.offset(memory, SLEEPERS))
    e.b.ret_void()
    return e.function
