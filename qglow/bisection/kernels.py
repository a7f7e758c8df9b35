"""The first kernel whose results differ between two targets.

Both programs run kernel by kernel with the code, the kernels and the memory plan that they have as a whole,
and every buffer is read where it lies: looking changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from qglow.bisection.difference import Difference, difference
from qglow.bisection.texts import copy_program
from qglow.core.types import Array
from qglow.instructions.program import Program
from qglow.targets.protocol import Step, SteppedTarget


@dataclass(frozen=True)
class KernelDifference:
    """A step whose result differs although every one before it is the same.

    instructions: names of those that one kernel executes on the left, and `kernels` how. nodes: of the graph,
    that they come from. compared: how many results were the same before it.
    """

    instructions: tuple[str, ...]
    kernels: tuple[str, ...]
    nodes: tuple[str, ...]
    difference: Difference
    compared: int


def first_kernel(
    program: Program,
    left: SteppedTarget,
    right: SteppedTarget,
    inputs: Mapping[str, Array],
    tolerance: float,
) -> KernelDifference | None:
    """The first step on the left with a result that differs on the right; None if there is none.

    program: lowered, without kernels; it stays as it is. inputs: logical arrays by name. A target that has no
    kernels runs the program as it was prepared for the left. Results that one side keeps in registers are
    not compared. tolerance: for floats, as in `difference`.

    Raises UsageError for a target that the host lacks.
    """
    prepared = prepare(program, left)
    other = prepare(program, right) if right.machine is not None else copy_program(prepared)
    expected: dict[tuple[str, str], Array] = {}
    for step in right.stepped(other).run(inputs):
        last = step.instructions[-1].name
        expected |= {(last, name): array for name, array in step.results.items()}
    compared = 0
    for step in left.stepped(prepared).run(inputs):
        for name, array, wanted in _pairs(step, expected):
            found = difference(name, array, wanted, tolerance)
            if found is not None:
                return _told(step, found, compared)
            compared += 1
    return None


def prepare(program: Program, target: SteppedTarget) -> Program:
    """A copy with the kernels and the memory plan of a target."""
    prepared = copy_program(program)
    target.select(prepared, target.choices())
    target.plan(prepared)
    return prepared


def _pairs(step: Step, expected: Mapping[tuple[str, str], Array]) -> Iterator[tuple[str, Array, Array]]:
    """Results of a step that the other side has too, after any instruction of the step."""
    for name, array in step.results.items():
        for instruction in reversed(step.instructions):
            wanted = expected.get((instruction.name, name))
            if wanted is not None:
                yield name, array, wanted
                break


def _told(step: Step, found: Difference, compared: int) -> KernelDifference:
    nodes = dict.fromkeys(node for i in step.instructions for node in (i.origin or (i.name,)))
    names = tuple(i.name for i in step.instructions)
    kernels = tuple(i.kernel or i.operation.opcode for i in step.instructions)
    return KernelDifference(names, kernels, tuple(nodes), found, compared)
