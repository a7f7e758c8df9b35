"""Programs inside of instructions: their text, their rules, their memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qglow.core.errors import TextError, VerificationError
from qglow.graph.interpreter import Interpreter
from qglow.instructions.interpreter import ArenaInterpreter
from qglow.instructions.ops.control import Loop
from qglow.instructions.passes import optimize
from qglow.instructions.plan import plan_memory
from qglow.instructions.program import Instruction, Program
from qglow.instructions.text import DEEPEST_BODY, constants_of, parse_program, print_program
from qglow.instructions.verifier import verify_program
from qglow.lowering import lower
from tests.fuzzing import examples
from tests.suite import control
from tests.suite.problem import Maker

MAKERS = [pytest.param(make, id=str(number)) for number, make in enumerate(control.PROBLEMS)]


def planned(make: Maker, seed: int = 3) -> tuple[Program, dict[str, np.ndarray]]:
    problem = make(np.random.default_rng(seed))
    program = lower(problem.graph)
    optimize(program)
    plan_memory(program)
    return program, problem.inputs


def structured(program: Program) -> Instruction:
    return next(i for i in program.code if i.operation.body_names)


@pytest.mark.parametrize("make", MAKERS)
def test_what_is_printed_is_parsed_and_computes_the_same(make: Maker) -> None:
    program, inputs = planned(make)
    text = print_program(program)
    again = parse_program(text, constants_of(program))
    verify_program(again, "parsed")
    assert print_program(again) == text
    expected = ArenaInterpreter(program).run(inputs)
    for name, array in ArenaInterpreter(again).run(inputs).items():
        np.testing.assert_array_equal(array, expected[name])


def test_passes_reach_the_programs_inside() -> None:
    program, _ = planned(control.cell(False, 16))
    (body,) = structured(program).operation.bodies
    opcodes = [i.operation.opcode for i in body.code]
    assert "tanh" in opcodes and not any(b.name.endswith(".unused") for b in body.all_buffers())
    unshared = lower(control.cell(False, 16)(np.random.default_rng(3)).graph)
    (before,) = structured(unshared).operation.bodies
    assert len(body.activations()) < len(before.activations())


def test_constants_inside_belong_to_the_whole() -> None:
    program, _ = planned(control.cell(True, 16))
    inside = structured(program).operation.bodies[0].constants
    assert inside and not program.constants
    assert {buffer.name for buffer in inside} == set(constants_of(program))


def test_the_memory_of_a_body_lies_in_its_instruction() -> None:
    program, _ = planned(control.cell(True, 37))
    instruction = structured(program)
    (body,) = instruction.operation.bodies
    scratch = instruction.operand("scratch")
    assert body.arena_size and scratch.type.size == instruction.operation.inside_bytes
    assert program.arena_size and program.arena_size >= scratch.type.size
    scratch.type = scratch.type.with_shape((scratch.type.size - 1,))
    with pytest.raises(VerificationError, match="memory is not in the scratch"):
        verify_program(program, "test")


def test_a_body_keeps_the_rules() -> None:
    program, _ = planned(control.cell(True, 37))
    body = structured(program).operation.bodies[0]
    body.code = [i for i in body.code if i.operation.opcode != "deallocactivation"]
    with pytest.raises(VerificationError, match=r"body of %Loop_0.* is not deallocated"):
        verify_program(program, "test")


def test_two_constants_of_one_name_are_refused() -> None:
    program, _ = planned(control.branch("product", 1.0))
    first, second = structured(program).operation.bodies
    second.constants.append(first.constants[0])
    with pytest.raises(VerificationError, match="two constants are called"):
        verify_program(program, "test")


def test_placeholders_that_do_not_fit_are_refused() -> None:
    program, _ = planned(control.swap(5, None))
    body = structured(program).operation.bodies[0]
    body.placeholders[1], body.placeholders[0] = body.placeholders[0], body.placeholders[1]
    with pytest.raises(VerificationError, match="body has placeholders"):
        verify_program(program, "test")


def test_a_loop_that_nothing_ends_is_refused() -> None:
    program, _ = planned(control.swap(None, 3, True))
    body = structured(program).operation.bodies[0]
    assert Loop(body, rounds=3, carried=2, started=True).fault(True) is None
    assert Loop(body, carried=2).fault(False) == "nothing ends the loop"


def test_text_of_absurd_depth_is_refused() -> None:
    head = "function f declare { } code { 0 %l = loop {rounds=1} "
    with pytest.raises(TextError, match=f"more than {DEEPEST_BODY} deep"):
        parse_program(head * (DEEPEST_BODY + 2))


@settings(max_examples=examples(25), deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    rounds=st.integers(0, 9),
    back=st.tuples(st.booleans(), st.booleans()),
    limit=st.one_of(st.none(), st.integers(-2, 7)),
)
def test_random_loops_equal_the_graph(
    seed: int, rounds: int, back: tuple[bool, bool], limit: int | None
) -> None:
    for make in (control.scan(rounds, back), control.swap(limit, rounds)):
        problem = make(np.random.default_rng(seed))
        program = lower(problem.graph)
        optimize(program)
        plan_memory(program)
        expected = Interpreter(problem.graph).run(problem.inputs)
        for name, array in ArenaInterpreter(program).run(problem.inputs).items():
            np.testing.assert_array_equal(array, expected[name])
