"""The process around a program on x86-64 Linux: float environment, waiting, permission for AMX tiles."""

from __future__ import annotations

import ctypes
from typing import Any

from llvmlite import ir

from qglow.core.errors import UsageError
from qglow.kernels.emit.builder import I32, I64, PTR, VOID, Builder, Value

DEFAULT_MXCSR = 0x1F80
"""Round to nearest even, denormals kept, all exceptions masked."""

FUTEX = 202
"""Number of the system call."""
WAIT, WAKE = 128, 129
"""Operations of futex(2), in the variants for threads of one process."""
EVERYONE = 0x7FFFFFFF

ARCH_PRCTL = 158
ARCH_REQ_XCOMP_PERM = 0x1023
XFEATURE_XTILEDATA = 18


def enter_default_environment(e: Builder) -> Any:
    """Set MXCSR to its default; returns the address where the caller's value is kept."""
    saved, wanted = e.b.alloca(I32), e.b.alloca(I32)
    e.call("llvm.x86.sse.stmxcsr", VOID, [saved])
    e.store(ir.Constant(I32, DEFAULT_MXCSR), wanted)
    e.call("llvm.x86.sse.ldmxcsr", VOID, [wanted])
    return saved


def restore_environment(e: Builder, saved: Any) -> None:
    """Set MXCSR to the value kept at an address."""
    e.call("llvm.x86.sse.ldmxcsr", VOID, [saved])


def pause(e: Builder) -> None:
    """Let a loop that spins leave execution units to the core's other thread."""
    e.call("llvm.x86.sse2.pause", VOID, [])


def sleep_while(e: Builder, pointer: Value, value: Value) -> None:
    """Sleep with futex(2) if the word still is `value`, until another thread wakes its sleepers."""
    _futex(e, pointer, WAIT, value)


def wake_sleepers(e: Builder, pointer: Value, most: Value | None) -> None:
    """Wake threads that sleep on a word with futex(2): all, or at most `most` (i32)."""
    _futex(e, pointer, WAKE, ir.Constant(I32, EVERYONE) if most is None else most)


def _futex(e: Builder, pointer: Value, operation: int, value: Value) -> None:
    syscall = e.module.globals.get("syscall")
    if syscall is None:
        syscall = ir.Function(e.module, ir.FunctionType(I64, [I64], var_arg=True), "syscall")
    nothing = ir.Constant(PTR, None)
    e.b.call(syscall, [ir.Constant(I64, FUTEX), pointer, ir.Constant(I32, operation), value, nothing])


def request_tiles() -> None:
    """Request permission for the tile registers from Linux; once a process is enough.

    Without it the first tile instruction kills the process. Raises UsageError if it is refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) != 0:
        raise UsageError(
            f"the kernel refuses AMX tiles (errno {ctypes.get_errno()}); choose QGLOW_ISA=avx512vnni"
        )
