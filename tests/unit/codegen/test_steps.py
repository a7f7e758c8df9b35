"""Steps that threads take together: what goes into one, what is worth it, who gets which part."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.codegen.calls import Call, make_call
from qglow.codegen.module import TEAM_ENTRY, ModuleBuilder
from qglow.codegen.steps import Work, is_worth_a_team, make_steps
from qglow.core.types import float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.liveness import Usage
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.ops.elementwise import ElementAdd
from qglow.instructions.passes.stacking import stacks
from qglow.instructions.program import Program
from qglow.kernels.emit.builder import I64, VOID, ir
from qglow.kernels.emit.emitter import Emitter
from qglow.targets.x86.isas import AVX2, GENERIC
from tests.runtimes import plan_apart, prepare


def padded(size: int = 24) -> Program:
    """Two convolutions of 3 x 3; the source of the second gets a border."""
    builder = ProgramBuilder("padded")
    kind = float_type(1, size, size, 16)
    weights = np.ones((16, 3, 3, 16), np.float32)
    bias = builder.constant("bias", np.zeros(16, np.float32))
    window = Convolution(pads=(1, 1, 1, 1))
    value = builder.placeholder("src", kind)
    for name, make in (("middle", builder.activation), ("dest", builder.placeholder)):
        result = make(name, kind)
        builder.emit(name, window, result, value, builder.constant(f"w_{name}", weights), bias)
        value = result
    prepared = prepare(builder.finish(), "avx2")
    plan_apart(prepared)
    return prepared


def calls(program: Program) -> list[Call]:
    usage = Usage(program)
    return [make_call(group, usage, AVX2) for group in stacks(program)]


def names(made: tuple[Call, ...]) -> list[str]:
    return [call.name for call in made]


def test_a_border_is_filled_beside_the_inside() -> None:
    fill, first, second = calls(padded())
    steps = make_steps([Work(fill, 1, 1), Work(first, 8, 8), Work(second, 8, 8)], 1e9)
    assert [names(step.alone) for step in steps] == [["fillpadding"], []]
    assert [step.shared for step in steps] == [(first,), (second,)]


def test_a_border_that_splits_is_shared_with_the_inside() -> None:
    fill, first, second = calls(padded())
    steps = make_steps([Work(fill, 23, 1), Work(first, 8, 8), Work(second, 8, 8)], 1e9)
    assert [(step.alone, step.shared) for step in steps] == [((), (fill, first)), ((), (second,))]


def test_a_border_is_not_filled_beside_who_reads_it() -> None:
    fill, first, second = calls(padded())
    steps = make_steps([Work(first, 8, 8), Work(fill, 23, 1), Work(second, 8, 8)], 1e9)
    assert [names(step.alone) for step in steps] == [[], ["fillpadding"], []]
    assert [step.shared for step in steps] == [(first,), (), (second,)]


def test_large_work_beside_is_a_part_of_its_own() -> None:
    fill, first, _ = calls(padded())
    (step,) = make_steps([Work(fill, 1, 1), Work(first, 8, 8)], fill.cost)
    assert step.apart and names(step.alone) == ["fillpadding"] and step.shared == (first,)


def test_neighbours_that_are_not_shared_are_one_step() -> None:
    steps = make_steps([Work(call, 5, 1) for call in calls(padded())], 1e9)
    assert [(len(step.alone), step.shared) for step in steps] == [(3, ())]
    assert not is_worth_a_team(steps, 0)


def test_parts_are_worth_their_time() -> None:
    call = calls(padded())[1]
    assert Work.of(call, 1000, call.cost / 3.5).parts == 3
    assert Work.of(call, 2, call.cost / 3.5).parts == 2
    assert Work.of(call, 1000, call.cost * 2).parts == 1
    assert Work.of(call, 1000, 0).parts == 1000


def test_small_programs_have_no_entry_for_teams() -> None:
    part_cycles = AVX2.model.threads.part_cycles
    assert TEAM_ENTRY not in last_module(padded(4), part_cycles)
    assert TEAM_ENTRY in last_module(padded(96), part_cycles)
    assert TEAM_ENTRY in last_module(padded(4), 0)
    assert part_cycles > 0


def test_a_function_splits_into_one_number_of_pieces() -> None:
    function = ir.Function(ir.Module(), ir.FunctionType(VOID, [I64, I64]), "f")
    e = Emitter(function, GENERIC, *function.args)
    assert e.share(5, shared=False) == (0, 5)
    assert e.share(1) == (0, 1)
    assert e.share(5) is e.share(5)
    assert e.units == 5
    with pytest.raises(ValueError, match="6 pieces"):
        e.share(6)
    with e.undivided():
        assert e.share(6) == (0, 6)


def test_addition_is_shared() -> None:
    builder = ProgramBuilder("sum")
    kind = float_type(4, 4096)
    src, dest = builder.placeholder("src", kind), builder.placeholder("dest", kind)
    builder.emit("add", ElementAdd(), dest, src, src)
    program = prepare(builder.finish(), "avx2")
    assert TEAM_ENTRY in last_module(program, 0)


def last_module(program: Program, part_cycles: float) -> str:
    """LLVM text of the module with the entries."""
    builder = ModuleBuilder(program, AVX2, part_cycles=part_cycles)
    *_, last = builder.batches(builder.functions(None))
    return last[-1]
