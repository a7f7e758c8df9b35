"""Each rule of the instruction IR is refused with the instruction's name."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from qglow.core.errors import VerificationError
from qglow.core.types import float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.ops.functions import FUNCTIONS
from qglow.instructions.ops.memory import AllocActivation, Copy
from qglow.instructions.program import Buffer, BufferKind, Instruction, Program
from qglow.instructions.text import parse_program
from qglow.instructions.verifier import verify_program

Tanh = FUNCTIONS["tanh"]

DECLARATIONS = """
  %w = WeightVar float<4> const
  %x = WeightVar float<4> mutable
  %image = WeightVar float<1 x 2 x 2 x 4> mutable
  %q = WeightVar i8[S:0.5 O:3]<4> mutable
  %y = WeightVar float<4> mutable
  %n = WeightVar i64<1> mutable
"""
OUTPUT = "%Out = copy @out %y, @in %x"


def verify(code: str, declarations: str = DECLARATIONS, arena: str = "") -> None:
    text = f"function f declare {{{declarations}}} {arena} code {{ {code} }}"
    verify_program(parse_program(text), "test")


BROKEN = {
    "a use before any write": (
        "%a = allocactivation float<4> %T = tanh @out %y, @in %a %d = deallocactivation @out %a",
        r"instruction 1 %T \(tanh\): %a: float<4> is read before it is written",
    ),
    "a use after deallocation": (
        "%a = allocactivation float<4> %S = splat @out %a %d = deallocactivation @out %a "
        "%T = tanh @out %y, @in %a",
        "instruction 3 %T .* used after its deallocation",
    ),
    "a view of what is deallocated": (
        "%a = allocactivation float<4> %S = splat @out %a %v = tensorview float<4> @in %a "
        "%d = deallocactivation @out %a %T = tanh @out %y, @in %v",
        "used after its deallocation",
    ),
    "a second deallocation": (
        f"{OUTPUT} %a = allocactivation float<4> %d = deallocactivation @out %a "
        "%e = deallocactivation @out %a",
        "used after its deallocation",
    ),
    "a deallocation of an input": (f"{OUTPUT} %d = deallocactivation @out %x", "is no activation"),
    "live places that no number counts": (f"{OUTPUT} live %w [4, 1]", "%w: .* is no number of live places"),
    "live places that are none": (f"{OUTPUT} live %n [0, 1]", r"live places are \[0, 1\]"),
    "live places of another result": (f"{OUTPUT} live %n [3, 1]", "has no places of 3 elements"),
    "sums that no number ends": (f"{OUTPUT} summed %x", "%x: .* is no number of live places"),
    "an activation that stays": (
        f"{OUTPUT} %a = allocactivation float<4>",
        "end of the code: .* not deallocated",
    ),
    "a name that is taken": (f"{OUTPUT} %Out = copy @out %y, @in %x", "the name %Out is taken"),
    "a written constant": (f"{OUTPUT} %S = splat @out %w", "constant %w: float<4> is written"),
    "an output of which a part is missing": (
        "%P = insert @inout %y, @in %part {offsets=[0]}",
        "output .* not written",
    ),
    "half of a buffer written and all read": (
        "%a = allocactivation float<4> %P = insert @inout %a, @in %part {offsets=[2]} "
        "%T = tanh @out %y, @in %a %d = deallocactivation @out %a",
        "is read before it is written",
    ),
    "a reshape of other size": (
        f"{OUTPUT} %v = tensorview float<5> @in %x",
        "a reshape has 4 elements, not 5",
    ),
    "a view of another element type": (
        f"{OUTPUT} %v = tensorview i8<4> @in %x",
        "one element type is needed",
    ),
    "a slice outside of its base": (
        f"{OUTPUT} %v = tensorview float<3> @in %x {{offsets=[2]}}",
        r"axis 0: 2..5 is outside of 0..4",
    ),
    "a reshape of a slice with gaps": (
        f"{OUTPUT} %v = tensorview float<1 x 2 x 2 x 2> @in %image {{offsets=[0, 0, 0, 0]}} "
        "%flat = tensorview float<8> @in %v",
        "%v is not contiguous and has no reshape",
    ),
    "a reshape of a padded buffer": (
        f"{OUTPUT} %a = allocactivation float<1 x 2 x 2 x 4> {{padding=[1, 1, 1, 1]}} "
        "%flat = tensorview float<16> @in %a",
        "%a is not contiguous and has no reshape",
    ),
    "a strided operand where a dense one is needed": (
        f"{OUTPUT} %v = tensorview float<1 x 2 x 2 x 2> @in %image {{offsets=[0, 0, 0, 2]}} "
        "%a = allocactivation float<1 x 2 x 2 x 2> %S = softmax @out %a, @in %v "
        "%d = deallocactivation @out %a",
        "operand src, %v.* is not contiguous",
    ),
    "padding of a buffer without height and width": (
        f"{OUTPUT} %a = allocactivation float<4> {{padding=[1, 0, 0, 0]}}",
        "has padding but not four axes",
    ),
    "filling another padding than there is": (
        f"{OUTPUT} %a = allocactivation float<1 x 2 x 2 x 4> {{padding=[1, 1, 1, 1]}} "
        "%F = fillpadding @inout %a {padding=[1, 1, 0, 0]} %d = deallocactivation @out %a",
        r"does not have the padding \(1, 1, 0, 0\)",
    ),
    "a copy onto itself": (f"{OUTPUT} %C = copy @out %y, @in %y", "dest and src may not share memory"),
    "in place but out of step": (
        "%a = allocactivation float<8> %S = splat @out %a %u = tensorview float<4> @in %a {offsets=[0]} "
        "%v = tensorview float<4> @in %a {offsets=[2]} %T = tanh @out %u, @in %v %C = copy @out %y, @in %u "
        "%d = deallocactivation @out %a",
        "operands dest and src may not share memory",
    ),
    "types that do not fit the operation": (
        f"{OUTPUT} %T = tanh @out %y, @in %q",
        "%T .* src is i8.*, not float",
    ),
    "a stack of what is not data-parallel": (
        f"{OUTPUT} %S = softmax @out %y, @in %x stack 0",
        "stacked, but softmax is not data-parallel",
    ),
    "a stack in two pieces": (
        "%a = allocactivation float<4> %T = tanh @out %a, @in %x stack 0 %C = copy @out %y, @in %x "
        "%U = tanh @out %a, @in %x stack 0 %d = deallocactivation @out %a",
        "stack 0 is not in one piece",
    ),
    "a stack of several shapes": (
        "%a = allocactivation float<1 x 2 x 2 x 4> %T = tanh @out %y, @in %x stack 0 "
        "%U = tanh @out %a, @in %image stack 0 %d = deallocactivation @out %a",
        "stack 0 has several shapes",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_refused(name: str) -> None:
    code, message = BROKEN[name]
    extra = "  %part = WeightVar float<2> const\n" if "%part" in code else ""
    with pytest.raises(VerificationError, match=message):
        verify(code, extra + DECLARATIONS)


def test_the_message_says_where() -> None:
    with pytest.raises(VerificationError, match="^test: %f: instruction 0 %T"):
        verify("%T = tanh @out %y, @in %q")


def test_disjoint_slices_of_one_buffer_may_be_read_and_written() -> None:
    verify(
        "%a = allocactivation float<8> %u = tensorview float<4> @in %a {offsets=[0]} "
        "%v = tensorview float<4> @in %a {offsets=[4]} %T = tanh @out %u, @in %x %U = copy @out %v, @in %u "
        "%C = copy @out %y, @in %v %d = deallocactivation @out %a"
    )


def test_interleaved_channel_slices_do_not_overlap() -> None:
    verify(
        f"{OUTPUT} %a = allocactivation float<1 x 2 x 2 x 8> %S = splat @out %a "
        "%u = tensorview float<1 x 2 x 2 x 4> @in %a {offsets=[0, 0, 0, 0]} "
        "%v = tensorview float<1 x 2 x 2 x 4> @in %a {offsets=[0, 0, 0, 4]} "
        "%C = copy @out %u, @in %v %d = deallocactivation @out %a"
    )


def test_parts_that_cover_a_buffer_count_as_written() -> None:
    verify(
        "%a = allocactivation float<4> %P = insert @inout %a, @in %part {offsets=[0]} "
        "%R = insert @inout %a, @in %part {offsets=[2]} %T = tanh @out %y, @in %a "
        "%d = deallocactivation @out %a",
        "%part = WeightVar float<2> const" + DECLARATIONS,
    )


@pytest.mark.parametrize(
    ("arena", "first", "second", "message"),
    [
        (512, 0, None, "has no place in the arena"),
        (512, 0, 508, "outside of the arena"),
        (512, 0, 8, "overlap"),
    ],
)
def test_plans_that_do_not_hold_are_refused(arena: int, first: int, second: int | None, message: str) -> None:
    place = "" if second is None else f"at {second}"
    code = (
        f"{OUTPUT} %a = allocactivation float<4> at {first} %b = allocactivation float<4> {place} "
        "%d = deallocactivation @out %a %e = deallocactivation @out %b"
    )
    with pytest.raises(VerificationError, match=message):
        verify(code, arena=f"arena {arena}")


def test_a_plan_that_holds_is_accepted() -> None:
    verify(
        f"{OUTPUT} %a = allocactivation float<4> at 0 %d = deallocactivation @out %a "
        "%b = allocactivation float<4> at 8 %e = deallocactivation @out %b",
        arena="arena 24",
    )


def small() -> Program:
    builder = ProgramBuilder("f")
    x, y = builder.placeholder("x", float_type(4)), builder.placeholder("y", float_type(4))
    builder.emit("T", Tanh(), y, x)
    return builder.finish()


def refused(program: Program, message: str) -> None:
    with pytest.raises(VerificationError, match=message):
        verify_program(program, "test")


def test_a_missing_operand_is_refused() -> None:
    program = small()
    program.code[0].buffers = (program.buffer("y"), None)
    refused(program, "operand src is missing")


def test_a_buffer_that_nothing_declares_is_refused() -> None:
    program = small()
    program.code[0].buffers = (program.buffer("y"), Buffer("z", float_type(4), BufferKind.PLACEHOLDER))
    refused(program, "used before it is allocated")


def test_an_allocation_under_another_name_is_refused() -> None:
    program = small()
    buffer = Buffer("a", float_type(4), BufferKind.ACTIVATION)
    program.code.insert(0, Instruction("b", AllocActivation(), (buffer,)))
    refused(program, "makes %a under another name")


def test_an_allocation_of_a_placeholder_is_refused() -> None:
    program = small()
    program.code.insert(
        0, Instruction("z", AllocActivation(), (Buffer("z", float_type(4), BufferKind.PLACEHOLDER),))
    )
    refused(program, "not of kind activation")


def test_a_view_with_another_base_is_refused() -> None:
    builder = ProgramBuilder("f")
    x, y = builder.placeholder("x", float_type(4)), builder.placeholder("y", float_type(4))
    view = builder.view("v", x, float_type(2, 2))
    builder.emit("C", Copy(), y, x)
    view.base = y
    refused(builder.finish(), "has another base than %x")


def test_constant_data_of_another_type_is_refused() -> None:
    builder = ProgramBuilder("f")
    w, y = builder.constant("w", np.zeros(4, np.float32)), builder.placeholder("y", float_type(4))
    builder.emit("C", Copy(), y, w)
    w.data = np.zeros(4, np.float64)
    refused(builder.finish(), "data of %w")


def test_a_constant_among_the_placeholders_is_refused() -> None:
    program = small()
    program.placeholders[0].kind = BufferKind.CONSTANT
    refused(program, "is no placeholder")


def test_a_placeholder_with_padding_is_refused() -> None:
    program = small()
    program.placeholders[0].padding = (1, 1, 1, 1)
    refused(program, "is not dense")


def test_operations_are_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Tanh().opcode = "other"  # type: ignore[misc]
