"""Threads that run one program together: the memory they share, and handing out parts of a step.

Every thread walks through all steps. In a step it takes parts until there are no more, its own
first, so that a thread mostly finds in its cache what it wrote before; then it waits until all
parts are done. Nobody waits for a thread that has not come: its parts are taken by others, and
when it comes it finds the steps done and catches up.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from qglow.codegen.atomics import Words
from qglow.kernels.builder import I32, I64, PTR, VOID, Emitter, Value

MOST_PARTS = 31
"""Parts of a step that one call goes into: bits of a word, one of which is left for other calls."""
LINE = 64
POSITION = 0
"""u64: the step in the upper half, a bit for every part that is taken in the lower."""
STEP = POSITION + 4
DONE = LINE
"""u32: parts of the step that are done."""
SLEEPERS = DONE + 4
"""u32: threads that sleep until the step is over."""
THREADS = DONE + 8
"""u32: how many may come."""
TEAM_BYTES = 2 * LINE
SPIN_CYCLES = 50_000
"""About 20 microseconds."""
NONE = -1


@dataclass(frozen=True)
class Team:
    """Emits what a thread, number `me`, does with the team whose memory is at `memory`."""

    e: Emitter
    memory: Value
    me: Value

    def parts(self, most: int) -> Value:
        """Into how many parts (i64) a step goes that can have so many."""
        e = self.e
        threads = e.b.zext(e.load(e.offset(self.memory, THREADS), I32), I64)
        return e.minimum(threads, min(most, MOST_PARTS))

    def take(self, step: int, parts: Value) -> Value:
        """A part of the step (i64), or NONE once all of them are done."""
        function = self.e.module.globals.get("qglow_take") or _define_take(self.e)
        return self.e.b.call(function, [self.memory, ir.Constant(I32, step), self.me, parts])

    def finish(self, step: int, parts: Value) -> None:
        """Say that a part is done; the last one ends the step."""
        function = self.e.module.globals.get("qglow_finish") or _define_finish(self.e)
        self.e.b.call(function, [self.memory, ir.Constant(I32, step), parts])


def _define(caller: Emitter, name: str, result: Value, kinds: list[Value]) -> Emitter:
    function = ir.Function(caller.module, ir.FunctionType(result, kinds), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    return Emitter(function, caller.isa)


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
    words.wait_while(e.offset(memory, STEP), step, e.offset(memory, SLEEPERS), SPIN_CYCLES)
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
