"""The memory plan: live buffers apart, aligned, and as little memory as can be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qglow.core.types import ElementType, TensorType, float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.liveness import Interval, intervals
from qglow.instructions.ops.functions import FUNCTIONS
from qglow.instructions.plan import (
    ALIGNMENT,
    SLACK,
    live_bound,
    padded_size,
    place_in_order,
    plan_memory,
)
from qglow.instructions.program import Buffer, BufferKind, Program
from qglow.instructions.verifier import verify_program
from tests.unit.instructions.programs import random_program

Tanh = FUNCTIONS["tanh"]

LIFETIMES = st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 30), st.integers(1, 12)), max_size=25)


def as_intervals(lifetimes: list[tuple[int, int, int]]) -> list[Interval]:
    return [
        Interval(
            Buffer(f"b{n}", TensorType(ElementType.INT8, (size,)), BufferKind.ACTIVATION),
            start,
            start + length,
        )
        for n, (size, start, length) in enumerate(lifetimes)
    ]


@given(LIFETIMES, st.randoms(use_true_random=False))
def test_no_order_lets_live_buffers_overlap(lifetimes: list[tuple[int, int, int]], random: object) -> None:
    found = as_intervals(lifetimes)
    order = list(range(len(found)))
    random.shuffle(order)  # type: ignore[attr-defined]
    offsets = place_in_order(found, order)
    for i, one in enumerate(found):
        assert offsets[i] % ALIGNMENT == 0
        for j in range(i):
            apart = offsets[i] >= offsets[j] + padded_size(found[j]) or offsets[j] >= offsets[
                i
            ] + padded_size(one)
            assert apart or not one.overlaps(found[j])


@given(LIFETIMES)
def test_the_bound_is_the_most_that_lives_at_one_time(lifetimes: list[tuple[int, int, int]]) -> None:
    found = as_intervals(lifetimes)
    live = [sum(padded_size(i) for i in found if i.start <= time < i.end) for time in range(50)]
    assert live_bound(found) == max(live)


@given(st.integers(0, 300))
def test_plans_of_random_programs_hold(seed: int) -> None:
    program = random_program(seed)
    plan = plan_memory(program)
    verify_program(program, "planned")
    assert plan.used >= plan.bound
    assert program.arena_size == plan.used + SLACK
    assert len(plan.entries) == len(intervals(program))


def chain(length: int) -> Program:
    builder = ProgramBuilder("chain")
    values = [builder.placeholder("x", float_type(100))]
    for number in range(length):
        values.append(builder.activation(f"a{number}", float_type(100)))
        builder.emit(f"T{number}", Tanh(), values[-1], values[-2])
        if number:
            builder.deallocate(values[-2])
    builder.emit("T", Tanh(), builder.placeholder("y", float_type(100)), values[-1])
    return builder.finish()


def test_a_chain_needs_two_buffers() -> None:
    plan = plan_memory(chain(9))
    assert plan.used == plan.bound == 2 * 448


def test_without_reuse_every_activation_has_its_own_memory() -> None:
    program = chain(5)
    plan = plan_memory(program, reuse=False)
    assert plan.used == 5 * 448
    verify_program(program, "planned")


def test_a_program_without_activations_has_no_arena() -> None:
    program = chain(0)
    plan = plan_memory(program)
    assert (program.arena_size, plan.used, plan.bound) == (0, 0, 0)


def test_padding_takes_memory() -> None:
    builder = ProgramBuilder("f")
    builder.activation("a", float_type(1, 2, 2, 16), (1, 1, 1, 1))
    assert plan_memory(builder.finish()).used == 4 * 4 * 16 * 4


def test_the_report_names_every_buffer_and_the_total() -> None:
    report = plan_memory(chain(3)).report()
    assert all(f"%a{number}" in report for number in range(3))
    assert "used 896 bytes, bound 896, used/bound 1.000, order size" in report


@pytest.mark.parametrize("lifetimes", [[], [(10, 0, 1)]])
def test_small_lists_are_placed_at_the_start(lifetimes: list[tuple[int, int, int]]) -> None:
    assert place_in_order(as_intervals(lifetimes), range(len(lifetimes))) == [0] * len(lifetimes)
