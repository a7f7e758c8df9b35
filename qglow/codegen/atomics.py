"""Words of memory through which threads speak, and sleeping until one changes (Linux: futex(2)).

A thread that waits looks again and again for a short while, since answers mostly come within a
microsecond, and then sleeps. Who changes a word wakes the sleepers, whose number is in a word of
its own, so that nobody calls the kernel where nobody sleeps.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from qglow.kernels.builder import I32, I64, PTR, VOID, Emitter, Value

FUTEX = 202
"""Number of the system call on x86-64."""
WAIT, WAKE = 128, 129
"""Its operations, within one process."""
EVERYONE = 0x7FFFFFFF
WAIT_FUNCTION = "qglow_wait"
ORDERING = "seq_cst"


@dataclass(frozen=True)
class Words:
    """Emits atomic operations, all of them sequentially consistent."""

    e: Emitter

    def load(self, pointer: Value, kind: Value = I32) -> Value:
        """The word."""
        return self.e.b.load_atomic(pointer, ORDERING, kind.width // 8, typ=kind)

    def set(self, pointer: Value, value: Value) -> Value:
        """Replace the word; gives the old one."""
        return self.e.b.atomic_rmw("xchg", pointer, value, ORDERING)

    def add(self, pointer: Value, value: int) -> Value:
        """Add to a 32-bit word; gives the old one."""
        return self.e.b.atomic_rmw("add", pointer, ir.Constant(I32, value), ORDERING)

    def replace(self, pointer: Value, old: Value, new: Value) -> Value:
        """Replace the word if it still is `old`; gives whether it was."""
        pair = self.e.b.cmpxchg(pointer, old, new, ORDERING)
        return self.e.b.extract_value(pair, 1)

    def wake(self, pointer: Value, sleepers: Value, most: Value | None = None) -> None:
        """Wake those that sleep on a word, which has been changed before: all, or so many (i32)."""
        e = self.e
        asleep = e.b.icmp_signed(">", self.load(sleepers), ir.Constant(I32, 0))
        with e.when(asleep, likely=False):
            self._futex(pointer, WAKE, ir.Constant(I32, EVERYONE) if most is None else most)

    def wait_while(self, pointer: Value, value: Value, sleepers: Value, cycles: int) -> None:
        """Come back once the word is not `value`: look for so many cycles, then sleep."""
        function = self.e.module.globals.get(WAIT_FUNCTION) or _define_wait(self.e)
        self.e.b.call(function, [pointer, value, sleepers, ir.Constant(I64, cycles)])

    def _futex(self, pointer: Value, operation: int, value: Value) -> None:
        e = self.e
        syscall = e.module.globals.get("syscall")
        if syscall is None:
            syscall = ir.Function(e.module, ir.FunctionType(I64, [I64], var_arg=True), "syscall")
        nothing = ir.Constant(PTR, None)
        e.b.call(syscall, [ir.Constant(I64, FUTEX), pointer, ir.Constant(I32, operation), value, nothing])


def _define_wait(caller: Emitter) -> Value:
    kinds = [PTR, I32, PTR, I64]
    function = ir.Function(caller.module, ir.FunctionType(VOID, kinds), WAIT_FUNCTION)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    pointer, value, sleepers, cycles = function.args
    e = Emitter(function, caller.isa)
    words = Words(e)
    look, pause, sleep, done = (e.b.append_basic_block(n) for n in ("look", "pause", "sleep", "done"))
    start = e.call("llvm.readcyclecounter", I64, [])
    e.b.branch(look)

    e.b.position_at_end(look)
    e.b.cbranch(e.b.icmp_unsigned("==", words.load(pointer), value), pause, done)

    e.b.position_at_end(pause)
    e.call("llvm.x86.sse2.pause", VOID, [])
    passed = e.b.sub(e.call("llvm.readcyclecounter", I64, []), start)
    e.b.cbranch(e.b.icmp_unsigned("<", passed, cycles), look, sleep)

    e.b.position_at_end(sleep)
    words.add(sleepers, 1)
    words._futex(pointer, WAIT, value)
    words.add(sleepers, -1)
    e.b.branch(look)

    e.b.position_at_end(done)
    e.b.ret_void()
    return function
