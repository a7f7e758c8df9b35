"""Programs that stop after every kernel, and the first kernel whose results differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from qglow.bisection.cut_program import cut, executed
from qglow.bisection.kernels import first_kernel, prepare
from qglow.bisection.minimal import INPUTS, MODEL, minimal_program, write_minimal
from qglow.bisection.texts import read_arrays, read_ir
from qglow.core.types import Array
from qglow.instructions.liveness import written_borders, written_parts
from qglow.instructions.passes import optimize
from qglow.instructions.program import Program
from qglow.lowering import lower
from qglow.targets.native.target import NativeTarget
from qglow.targets.protocol import Emission, Step, SteppedTarget
from qglow.targets.registry import find_target, running_targets
from tests.fuzzing import seed_of
from tests.suite.problem import Problem
from tests.test_runtimes import FLOAT_TOLERANCE, MAKERS

REFERENCE = cast(SteppedTarget, find_target("reference"))
NATIVE = [target.description.name for target in running_targets()]
SOME = [(name, make) for number, (name, make) in enumerate(MAKERS) if number % 9 == 0]


class WrongKernel(NativeTarget):
    """A native target whose kernels of one operation add 1 to the last element of what they store."""

    opcode = "convolution"

    def stepped(self, program: Program, *, cache: bool = False) -> WrongCode:  # type: ignore[override]
        return WrongCode(program, self)


class WrongCode:
    def __init__(self, program: Program, target: WrongKernel) -> None:
        self._right = NativeTarget.stepped(target, program)
        self._opcode = target.opcode

    def run(self, inputs: Mapping[str, Array]) -> Iterator[Step]:
        for step in self._right.run(inputs):
            results = dict(step.results)
            if self._opcode in step.instructions[0].operation.opcode:
                for array in results.values():
                    array.reshape(-1)[-1] += 1
            yield replace(step, results=results)


def problem(name: str) -> Problem:
    return dict(MAKERS)[name](np.random.default_rng(seed_of(name)))


def lowered(drawn: Problem) -> Program:
    program = lower(drawn.graph)
    optimize(program)
    return program


@pytest.mark.parametrize("isa", NATIVE)
@pytest.mark.parametrize("name", [name for name, _ in SOME])
def test_stepped_code_equals_the_reference_kernel_by_kernel(name: str, isa: str) -> None:
    drawn = problem(name)
    target = cast(SteppedTarget, find_target(isa))
    tolerance = 0.0 if drawn.exact else FLOAT_TOLERANCE
    assert first_kernel(lowered(drawn), target, REFERENCE, drawn.inputs, tolerance) is None


@pytest.mark.parametrize("name", [name for name, _ in SOME])
def test_last_steps_leave_the_outputs_of_the_whole_program(name: str) -> None:
    drawn = problem(name)
    target = cast(SteppedTarget, find_target(NATIVE[-1]))
    prepared = prepare(lowered(drawn), target)
    left: dict[str, Array] = {}
    for step in target.stepped(prepared).run(drawn.inputs):
        left |= step.results
    code = target.emit(prepared, Emission(cache=False))
    outputs = target.load(code, 1, lambda: prepared)(drawn.inputs)
    for name_, array in outputs.items():
        if name_ in left and left[name_].shape == array.shape:
            np.testing.assert_array_equal(left[name_], array)


def wrong_target() -> WrongKernel:
    native = cast(NativeTarget, find_target(NATIVE[-1]))
    return WrongKernel(native.machine, native.summary)


def padded() -> tuple[Program, dict[str, Array]]:
    """A program in which a target pads the input of a kernel, and inputs for it."""
    native = cast(SteppedTarget, find_target(NATIVE[-1]))
    for name in (name for name, _ in MAKERS):
        drawn = problem(name)
        program = lowered(drawn)
        if drawn.exact and any(written_borders(i) for i in prepare(program, native).code):
            return program, dict(drawn.inputs)
    raise AssertionError("no problem has padding")


def test_wrong_border_is_found_and_cut_out() -> None:
    program, inputs = padded()
    wrong = wrong_target()
    wrong.opcode = "fillpadding"
    found = first_kernel(program, wrong, REFERENCE, inputs, 0.0)
    assert found is not None and found.instructions[0].startswith("pad_")
    assert found.difference.name.rpartition(".")[2] in ("top", "bottom", "left", "right")
    made = minimal_program(program, found, wrong, REFERENCE, inputs, 0.0)
    assert made.difference.difference == found.difference
    assert len(executed(made.program)) < len(executed(program))
    assert first_kernel(program, cast(SteppedTarget, find_target(NATIVE[-1])), REFERENCE, inputs, 0.0) is None


def convolution() -> Problem:
    return next(p for p in (problem(name) for name, _ in MAKERS if name.startswith("conv")) if p.exact)


def test_wrong_kernel_is_found() -> None:
    drawn = convolution()
    program = lowered(drawn)
    found = first_kernel(program, wrong_target(), REFERENCE, drawn.inputs, 0.0)
    assert found is not None
    opcodes = {i.name: i.operation.opcode for i in program.code}
    assert "convolution" in opcodes[found.instructions[0]]
    assert "1 of " in found.difference.what


def test_minimal_program_shows_it_and_is_written(tmp_path: Path) -> None:
    drawn = convolution()
    program, wrong = lowered(drawn), wrong_target()
    found = first_kernel(program, wrong, REFERENCE, drawn.inputs, 0.0)
    assert found is not None
    made = minimal_program(program, found, wrong, REFERENCE, drawn.inputs, 0.0)
    assert len(executed(made.program)) <= len(found.instructions) + 1
    write_minimal(tmp_path, made.program, made.inputs)
    again = read_ir(tmp_path / MODEL)
    assert isinstance(again, Program)
    shown = first_kernel(again, wrong, REFERENCE, read_arrays(tmp_path / INPUTS), 0.0)
    assert shown is not None and shown.difference == made.difference.difference


@pytest.mark.parametrize("name", [name for name, _ in SOME])
def test_every_instruction_cut_out_runs_as_in_the_whole(name: str) -> None:
    drawn = problem(name)
    program = lowered(drawn)
    whole = {
        (step.instructions[0].name, buffer): array
        for step in REFERENCE.stepped(prepare(program, REFERENCE)).run(drawn.inputs)
        for buffer, array in step.results.items()
    }
    for place, instruction in enumerate(executed(program)):
        part, inputs = cut(program, place, place, drawn.inputs)
        left: dict[str, Array] = {}
        for step in REFERENCE.stepped(prepare(part, REFERENCE)).run(inputs):
            left |= step.results
        for buffer in written_parts(instruction):
            np.testing.assert_array_equal(left[buffer.name], whole[instruction.name, buffer.name])
