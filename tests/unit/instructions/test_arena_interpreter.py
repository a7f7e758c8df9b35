"""The interpreter runs programs on their planned memory and keeps state."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qglow.core.errors import UsageError
from qglow.core.passes import PassLog
from qglow.core.types import Array, ElementType, Quantization, TensorType, float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.interpreter import ArenaInterpreter
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.ops.functions import FUNCTIONS
from qglow.instructions.ops.memory import Copy, FillPadding
from qglow.instructions.ops.movement import Insert
from qglow.instructions.ops.profile import RecordProfile
from qglow.instructions.passes import default_pipeline, optimize
from qglow.instructions.plan import plan_memory
from qglow.instructions.program import Instruction, Program
from qglow.instructions.text import parse_program, print_program
from qglow.instructions.verifier import verify_program
from qglow.numerics.conv import conv_float
from tests.unit.instructions.programs import random_program, run_planned

Tanh = FUNCTIONS["tanh"]


@given(st.integers(0, 400), st.integers(6, 22))
def test_passes_change_no_bit_of_any_result(seed: int, length: int) -> None:
    expected = run_planned(random_program(seed, length))
    program = random_program(seed, length)
    optimize(program)
    text = print_program(program)
    assert print_program(parse_program(text)) == text
    found = run_planned(program)
    assert {name: value.tobytes() for name, value in found.items()} == {
        name: value.tobytes() for name, value in expected.items()
    }


@given(st.integers(0, 60), st.integers(0, 40))
def test_passes_can_stop_after_any_rewrite(seed: int, budget: int) -> None:
    expected = run_planned(random_program(seed, 12))
    program = random_program(seed, 12)
    log = default_pipeline().run(program, verify_program, PassLog(budget=budget))
    assert log.rewrites <= budget
    found = run_planned(program)
    assert all(np.array_equal(found[name], expected[name], equal_nan=True) for name in expected)


@given(st.integers(0, 100))
def test_passes_take_no_more_memory_than_the_program_had(seed: int) -> None:
    before, after = random_program(seed), random_program(seed)
    optimize(after)
    for program in (before, after):
        plan_memory(program)
    assert sum(b.byte_size for b in after.activations()) <= sum(b.byte_size for b in before.activations())


def padded_convolution() -> Program:
    builder = ProgramBuilder("f")
    x = builder.placeholder("x", float_type(1, 3, 3, 2))
    y = builder.placeholder("y", float_type(1, 3, 3, 4))
    w = builder.constant("w", np.random.default_rng(0).normal(size=(4, 3, 3, 2)).astype(np.float32))
    padded = builder.activation("padded", x.type, (1, 1, 1, 1))
    builder.emit("pad", FillPadding((1, 1, 1, 1)), padded)
    builder.emit("copy", Copy(), padded, x)
    builder.emit("conv", Convolution(pads=(1, 1, 1, 1)), y, padded, w)
    return builder.finish()


def test_padded_buffers_are_strided() -> None:
    program = padded_convolution()
    x = np.random.default_rng(1).normal(size=(1, 3, 3, 2)).astype(np.float32)
    verify_program(program, "test")
    plan_memory(program)
    found = ArenaInterpreter(program).run({"x": x})["y"]
    weights = program.constants[0].data
    assert weights is not None
    pads = (1, 1, 1, 1)
    wanted = conv_float(x.transpose(0, 3, 1, 2), weights.transpose(0, 3, 1, 2), None, (1, 1), pads)
    np.testing.assert_array_equal(found, wanted.transpose(0, 2, 3, 1))


def test_padding_is_filled_with_the_zero_point() -> None:
    builder = ProgramBuilder("f")
    kind = TensorType(ElementType.INT8, (1, 1, 1, 2), Quantization.per_tensor(0.5, -7))
    padded = builder.activation("padded", kind, (1, 0, 2, 1))
    builder.emit("pad", FillPadding((1, 0, 2, 1)), padded)
    program = builder.finish()
    plan_memory(program)
    seen: list[Array] = []
    interpreter = ArenaInterpreter(program)
    interpreter.run({}, taps=lambda instruction, _: seen.append(interpreter._padded(padded).copy()))
    assert (seen[0].shape, seen[0].size) == ((1, 4, 2, 2), 16)
    assert np.count_nonzero(seen[0] == -7) == 14


def tanh_program() -> Program:
    builder = ProgramBuilder("f")
    x, y = builder.placeholder("x", float_type(3)), builder.placeholder("y", float_type(3))
    a = builder.activation("a", float_type(3))
    builder.emit("T", Tanh(), a, x)
    builder.emit("U", Tanh(), y, a)
    return builder.finish()


def test_taps_see_what_each_instruction_wrote() -> None:
    program = tanh_program()
    plan_memory(program)
    seen: dict[str, list[str]] = {}

    def tap(instruction: Instruction, written: dict[str, Array]) -> None:
        seen[instruction.name] = list(written)
        for value in written.values():
            value[...] = 7.0

    inputs = {"x": np.zeros(3, np.float32)}
    result = ArenaInterpreter(program).run(inputs, tap)
    assert seen == {"T": ["a"], "U": ["y"]}
    assert not result["y"].any(), "taps get copies"


def test_memory_that_nobody_wrote_shows() -> None:
    builder = ProgramBuilder("f")
    y = builder.placeholder("y", float_type(2))
    a = builder.activation("a", float_type(2))
    builder.emit("C", Copy(), y, a)
    program = builder.finish()
    plan_memory(program)
    assert (ArenaInterpreter(program).run({})["y"].view(np.uint8) == 0x5A).all()


def test_state_is_kept_between_runs() -> None:
    builder = ProgramBuilder("f")
    x = builder.placeholder("x", float_type(2, 3))
    counts = builder.placeholder("counts", TensorType(ElementType.INT64, (65536,)))
    extent = builder.placeholder("extent", float_type(2))
    channels = builder.placeholder("channels", float_type(2, 3))
    sums = builder.placeholder("sums", TensorType(ElementType.DOUBLE, (2, 3)))
    builder.emit("P", RecordProfile(channel_axis=1), x, counts, extent, channels, sums)
    program = builder.finish()
    plan_memory(program)
    verify_program(program, "test")
    interpreter = ArenaInterpreter(program)
    assert set(interpreter.state) == {"counts", "extent", "channels", "sums"}
    for name in ("extent", "channels"):
        interpreter.state[name][:1], interpreter.state[name][1:] = np.inf, -np.inf
    first = np.array([[1, -2, 3], [4, 5, np.nan]], np.float32)
    second = np.array([[0, 9, np.inf], [1, 1, 1]], np.float32)
    interpreter.run({"x": first})
    interpreter.run({"x": second})
    assert interpreter.state["counts"].sum() == 12
    np.testing.assert_array_equal(interpreter.state["extent"], [-2, 9])
    np.testing.assert_array_equal(interpreter.state["channels"], [[0, -2, 1], [4, 9, 3]])
    np.testing.assert_array_equal(interpreter.state["sums"], [[0, 9, 0], [1, 1, 1]])


def test_a_reshape_view_of_an_input_leaves_it_an_input() -> None:
    builder = ProgramBuilder("f")
    x, y = builder.placeholder("x", float_type(6)), builder.placeholder("y", float_type(2, 3))
    builder.emit("C", Copy(), y, builder.view("v", x, float_type(2, 3)))
    program = builder.finish()
    verify_program(program, "test")
    plan_memory(program)
    assert [b.name for b in program.inputs()] == ["x"]
    value = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(ArenaInterpreter(program).run({"x": value})["y"], value.reshape(2, 3))


def test_empty_batches_run() -> None:
    builder = ProgramBuilder("f")
    x, y = builder.placeholder("x", float_type(0, 3)), builder.placeholder("y", float_type(0, 6))
    a = builder.activation("a", float_type(0, 3))
    builder.emit("T", Tanh(), a, x)
    builder.emit("L", Insert((0, 0)), y, a)
    builder.emit("R", Insert((0, 3)), y, a)
    program = builder.finish()
    optimize(program)
    plan_memory(program)
    assert ArenaInterpreter(program).run({"x": np.zeros((0, 3), np.float32)})["y"].shape == (0, 6)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "inputs are x, not none"),
        ({"z": np.zeros(3, np.float32)}, "inputs are x, not z"),
        ({"x": np.zeros(4, np.float32)}, r"input %x is float<3>, not float32\[4\]"),
        ({"x": np.zeros(3, np.float64)}, "not float64"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs: dict[str, Array], message: str) -> None:
    program = tanh_program()
    plan_memory(program)
    with pytest.raises(UsageError, match=message):
        ArenaInterpreter(program).run(inputs)


def test_an_unplanned_program_is_refused() -> None:
    with pytest.raises(UsageError, match="no memory plan"):
        ArenaInterpreter(tanh_program())


def test_a_constant_without_data_is_refused() -> None:
    program = parse_program(print_program(padded_convolution()))
    plan_memory(program)
    with pytest.raises(UsageError, match="constant %w has no data"):
        ArenaInterpreter(program)
