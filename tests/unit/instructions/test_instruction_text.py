"""Listings print and parse; what does not parse is refused with its place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qglow.core.errors import TextError
from qglow.core.types import float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.ops.functions import FUNCTIONS
from qglow.instructions.plan import plan_memory
from qglow.instructions.program import Program
from qglow.instructions.text import constants_of, parse_program, print_instruction, print_program
from tests.unit.instructions.programs import random_program

Tanh = FUNCTIONS["tanh"]

SMALL = """function f
declare {
  %w = WeightVar float<2> const    // size: 8 // users: none
  %x = WeightVar float<2> mutable  // size: 8 // users: @in 0
  %y = WeightVar float<2> mutable  // size: 8 // users: @out 0
  ; size = 24 bytes
}
code {
  0 %T = tanh @out %y, @in %x
}
"""


def tanh_program(x: str, y: str) -> Program:
    builder = ProgramBuilder("f")
    inputs = builder.placeholder(x, float_type(2)), builder.placeholder(y, float_type(2))
    builder.emit("T", Tanh(), inputs[1], inputs[0])
    return builder.finish()


def test_a_listing_survives_parsing() -> None:
    assert print_program(parse_program(SMALL)) == SMALL


@given(st.text(min_size=1), st.text(min_size=1))
def test_any_name_survives_parsing(x: str, y: str) -> None:
    text = print_program(tanh_program(x, y + "'"))
    assert print_program(parse_program(text)) == text


@pytest.mark.parametrize(
    "name", ["758", "no", "1e-05", "inf", "nan.0", "a b", 'a"b', "a//b", "none", "x;y", "é"]
)
def test_odd_names_survive_parsing(name: str) -> None:
    parsed = parse_program(print_program(tanh_program(name, "result")))
    assert parsed.placeholders[0].name == name


@given(st.integers(0, 200))
def test_random_programs_survive_parsing_planned_or_not(seed: int) -> None:
    program = random_program(seed)
    text = print_program(program)
    assert print_program(parse_program(text)) == text
    plan_memory(program)
    planned = print_program(program)
    assert planned != text
    assert print_program(parse_program(planned)) == planned


def test_kernel_stack_and_origin_survive_parsing() -> None:
    program = parse_program(SMALL)
    instruction = program.code[0]
    instruction.kernel, instruction.stack, instruction.origin = 'tile "4x16"', 7, ("Tanh_0", "other node")
    assert print_instruction(instruction).endswith(
        'kernel "tile \\"4x16\\"" stack 7 from ["Tanh_0", "other node"]'
    )
    parsed = parse_program(print_program(program)).code[0]
    assert (parsed.kernel, parsed.stack, parsed.origin) == (instruction.kernel, 7, instruction.origin)


def test_an_instruction_without_origin_comes_from_the_node_of_its_name() -> None:
    assert parse_program(SMALL).code[0].origin == ("T",)


def test_absent_operands_are_known_by_their_access() -> None:
    builder = ProgramBuilder("f")
    x = builder.placeholder("x", float_type(1, 2, 2, 1))
    w = builder.constant("w", np.ones((1, 1, 1, 1), np.float32))
    y = builder.placeholder("y", float_type(1, 2, 2, 1))
    scratch = builder.activation("s", float_type(4))
    builder.emit("C", Convolution(), y, x, w, None, None, scratch)
    builder.emit("D", Convolution(), y, x, w, None, w)
    text = print_program(builder.finish())
    assert "convolution @out %y, @in %x, @in %w, @scratch %s" in text
    assert "convolution @out %y, @in %x, @in %w, @in none, @in %w" in text
    parsed = parse_program(text)
    assert print_program(parsed) == text
    assert [b.name if b else None for b in parsed.code[1].buffers] == ["y", "x", "w", None, None, "s"]


def test_constants_get_their_data() -> None:
    data = np.array([1.0, 2.0], np.float32)
    assert constants_of(parse_program(SMALL, {"w": data}))["w"] is data


def test_constants_without_data_have_none_to_give() -> None:
    with pytest.raises(KeyError, match="w"):
        constants_of(parse_program(SMALL))


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({}, "no data is given for constant %w"),
        ({"w": np.zeros(3, np.float32)}, r"constant %w is float<2>, its data float32\[3\]"),
        ({"w": np.zeros(2, np.int8)}, "its data int8"),
    ],
)
def test_constants_that_do_not_fit_are_refused(constants: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(TextError, match=message):
        parse_program(SMALL, constants)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0 %T", "1 %T", "line 9, column 5: this is instruction number 0"),
        ("tanh", "tahn", "line 9, column 10: no operation is called tahn"),
        ("@in %x\n", "@in %z\n", "no buffer is called %z"),
        (", @in %x\n", "\n", "operand @in src is missing"),
        ("@in %x\n", "@in %x, @in %x\n", "no operand @in is expected here"),
        ("@in %x\n", "@on %x\n", "unknown access @on"),
        ("@in %x\n", "@in %x {alpha=1}\n", "Tanh has no attribute alpha"),
        ("%w =", "%x =", "a buffer is already called %x"),
        ("const ", "static ", "expected const or mutable"),
        ("function", "program", "expected 'function'"),
        ("float<2> const", "f32<2> const", "unknown element type 'f32'"),
        ("tanh @out %y, @in %x", "allocactivation float<2> {padding=[1]}", "padding is"),
        ("tanh @out %y, @in %x", "allocactivation float<2> {alignment=1}", "no attribute alignment"),
        ("  0 %T", "} more", "text after the end"),
    ],
)
def test_broken_listings_are_refused(old: str, new: str, message: str) -> None:
    assert old in SMALL
    with pytest.raises(TextError, match=message):
        parse_program(SMALL.replace(old, new))


def test_an_int8_value_shows_its_real_range() -> None:
    text = SMALL.replace("%x = WeightVar float<2>", "%x = WeightVar i8[S:0.5 O:-128]<2>")
    assert "// real: [0.0, 127.5]" in print_program(parse_program(text))


LIVE = """function f
declare {
  %n = WeightVar i64<1>        mutable  // size: 8   // users: none
  %x = WeightVar float<4 x 8>  mutable  // size: 128 // users: @in 0
  %y = WeightVar float<8 x 4>  mutable  // size: 128 // users: @in 0
  %z = WeightVar float<4 x 4>  mutable  // size: 64  // users: @out 0
  ; size = 328 bytes
}
code {
  0 %P = matmul @out %z, @in %x, @in %y live %n [4, 4] live %n [4, 1] summed %n
}
"""


def test_live_places_survive_parsing() -> None:
    program = parse_program(LIVE)
    (instruction,) = program.code
    assert [(rule.count.name, rule.extent, rule.inner) for rule in instruction.live] == [
        ("n", 4, 4),
        ("n", 4, 1),
    ]
    assert instruction.summed is program.placeholders[0]
    assert print_program(parse_program(print_program(program))) == print_program(program)
    assert "live %n [4, 4] live %n [4, 1] summed %n" in print_program(program)


@pytest.mark.parametrize(
    ("text", "message"),
    [("[4]", r"live places are \[extent, inner\]"), ("[4, true]", "live places"), ("4", "live places")],
)
def test_live_places_of_other_kinds_are_refused(text: str, message: str) -> None:
    with pytest.raises(TextError, match=message):
        parse_program(LIVE.replace("[4, 4]", text))
