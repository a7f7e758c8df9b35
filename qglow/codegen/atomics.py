"""Words of memory through which threads synchronise, and waiting until one changes.

A waiting thread spins for a short while, since answers mostly come within a microsecond, and then sleeps.
The thread that changes a word wakes the sleepers. Their number is kept in a second word, so that no
system call is made if nobody sleeps.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from qglow.kernels.emit.builder import I32, I64, PTR, VOID, Value
from qglow.kernels.emit.emitter import Emitter

WAIT_FUNCTION = "qglow_wait"
ORDERING = "seq_cst"


@dataclass(frozen=True)
class Words:
    """Emits atomic operations, all of them sequentially consistent."""

    e: Emitter

    def load(self, pointer: Value, kind: Value = I32) -> Value:
        """Load the word."""
        return self.e.b.load_atomic(pointer, ORDERING, kind.width // 8, typ=kind)

    def set(self, pointer: Value, value: Value) -> Value:
        """Replace the word, and return the old one."""
        return self.e.b.atomic_rmw("xchg", pointer, value, ORDERING)

    def add(self, pointer: Value, value: int) -> Value:
        """Add to a 32-bit word, and return the old one."""
        return self.e.b.atomic_rmw("add", pointer, ir.Constant(I32, value), ORDERING)

    def replace(self, pointer: Value, old: Value, new: Value) -> Value:
        """Replace the word if it still is `old`, and return whether it was."""
        pair = self.e.b.cmpxchg(pointer, old, new, ORDERING)
        return self.e.b.extract_value(pair, 1)

    def wake(self, pointer: Value, sleepers: Value, most: Value | None = None) -> None:
        """Wake threads that sleep on a word, which must be changed before: all, or at most `most` (i32)."""
        e = self.e
        asleep = e.b.icmp_signed(">", self.load(sleepers), ir.Constant(I32, 0))
        with e.when(asleep, likely=False):
            e.target.wake(e, pointer, most)

    def wait_while(self, pointer: Value, value: Value, sleepers: Value, cycles: int) -> None:
        """Wait until the word is not `value`: spin for `cycles` cycles, then sleep."""
        function = self.e.module.globals.get(WAIT_FUNCTION) or _define_wait(self.e)
        self.e.b.call(function, [pointer, value, sleepers, ir.Constant(I64, cycles)])


def _define_wait(caller: Emitter) -> Value:
    kinds = [PTR, I32, PTR, I64]
    function = ir.Function(caller.module, ir.FunctionType(VOID, kinds), WAIT_FUNCTION)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    pointer, value, sleepers, cycles = function.args
    e = Emitter(function, caller.target)
    words = Words(e)
    look, spin, sleep, done = (e.b.append_basic_block(n) for n in ("look", "spin", "sleep", "done"))
    start = e.target.cycles(e)
    e.b.branch(look)

    e.b.position_at_end(look)
    e.b.cbranch(e.b.icmp_unsigned("==", words.load(pointer), value), spin, done)

    e.b.position_at_end(spin)
    e.target.spin_hint(e)
    passed = e.b.sub(e.target.cycles(e), start)
    e.b.cbranch(e.b.icmp_unsigned("<", passed, cycles), look, sleep)

    e.b.position_at_end(sleep)
    words.add(sleepers, 1)
    e.target.wait(e, pointer, value)
    words.add(sleepers, -1)
    e.b.branch(look)

    e.b.position_at_end(done)
    e.b.ret_void()
    return function
