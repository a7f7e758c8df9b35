"""Parts of a program for the threads of a caller.

    void PREFIX_part(void *arena, const void *weights, const PREFIX_io *io, uint32_t step, uint32_t part)

A program is a sequence of steps. The parts of a step may run at the same time, in any order and on any
thread; every part of a step ends before the first one of the next begins. So the caller's own pool runs
them, and the code needs neither atomics nor a system. Results do not depend on who runs what.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from qglow.bundles.interface import Interface
from qglow.codegen.module import ModuleBuilder
from qglow.codegen.steps import ProgramStep
from qglow.kernels.emit.builder import I32, I64, PTR, VOID, Value
from qglow.kernels.emit.emitter import Emitter


def part_counts(builder: ModuleBuilder, interface: Interface, threads: int) -> tuple[int, ...]:
    """Parts of every step for at most so many threads; what is done before and behind is a step of one."""
    steps = [min(step.parts, threads) + int(step.apart) for step in builder.steps]
    return (*_one_step(bool(interface.converted_inputs())), *steps, *_one_step(interface.finishes))


def _one_step(needed: bool) -> list[int]:
    return [1] if needed else []


def add_parts(
    module: Any,
    builder: ModuleBuilder,
    interface: Interface,
    threads: int,
    table: Callable[[Emitter, Value, Value], Value],
    around: tuple[Callable[[Emitter, Value, Value], None], Callable[[Emitter, Value, Value], None]],
) -> None:
    """Add the function and the numbers of parts to a module.

    table: emits the table of addresses of placeholders, from the arena and `io`. around: emit the conversion
    of inputs before the program, and what is left to do behind it.
    """
    prefix, target = interface.prefix, builder.target
    counts = part_counts(builder, interface, threads)
    kind = ir.ArrayType(I32, len(counts))
    numbers = ir.GlobalVariable(module, kind, f"{prefix}_parts")
    numbers.initializer = ir.Constant(kind, [ir.Constant(I32, count) for count in counts])
    numbers.global_constant, numbers.align = True, 4
    first = len(_one_step(bool(interface.converted_inputs())))
    inner = _steps_function(module, builder, threads, first)
    function = ir.Function(module, inner.function_type, f"{prefix}_part")
    function.attributes.add("nounwind")
    e = Emitter(function, target)
    arena, weights, io, number, part = function.args
    if first:
        with e.when(e.b.icmp_unsigned("==", number, ir.Constant(I32, 0))):
            around[0](e, arena, io)
    e.b.call(inner, [arena, weights, table(e, arena, io), number, part])
    if interface.finishes:
        with e.when(e.b.icmp_unsigned("==", number, ir.Constant(I32, len(counts) - 1))):
            around[1](e, arena, io)
    e.b.ret_void()


def _steps_function(module: Any, builder: ModuleBuilder, threads: int, first: int) -> Any:
    """A function of its own, whose table of addresses is filled before it is called. first: number of its
    first step."""
    function = ir.Function(module, ir.FunctionType(VOID, [PTR, PTR, PTR, I32, I32]), "qglow_part")
    function.linkage = "internal"
    function.attributes.add("nounwind")
    function.attributes.add("noinline")
    e = Emitter(function, builder.target)
    *memory, number, part = function.args
    saved = builder.target.enter_float_environment(e)
    for place, step in enumerate(builder.steps, first):
        with e.when(e.b.icmp_unsigned("==", number, ir.Constant(I32, place))):
            _emit_step(e, builder, step, threads, (memory[0], memory[1], memory[2]), part)
    builder.target.leave_float_environment(e, saved)
    e.b.ret_void()
    return function


def _emit_step(
    e: Emitter,
    builder: ModuleBuilder,
    step: ProgramStep,
    threads: int,
    memory: tuple[Value, Value, Value],
    part: Value,
) -> None:
    """One part of a step: the first one also makes the calls that are for one thread."""
    wide = e.b.zext(part, I64)
    is_first = e.b.icmp_unsigned("==", wide, e.index(0))
    share = e.plus(wide, -int(step.apart)), e.index(min(step.parts, threads))
    with e.when(is_first):
        builder.emit_calls(e, memory, step.alone, (e.index(0), e.index(1)))
    if not step.apart:
        builder.emit_calls(e, memory, step.shared, share)
        return
    with e.when(e.b.not_(is_first)):
        builder.emit_calls(e, memory, step.shared, share)
