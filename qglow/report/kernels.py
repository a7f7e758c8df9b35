"""The kernels of a program for people: what each is estimated to cost, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Collection

from qglow.display.blocks import Paragraph, Section, table
from qglow.display.document import Document
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.ops.linear import FullyConnected, MatMul
from qglow.instructions.program import Instruction, Program
from qglow.kernels.emit.kernel import parse_kernel
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.selection.choice import NO_CHOICES, Choices, kernel_key
from qglow.kernels.selection.epilogue_choice import epilogue_groups, epilogue_key, fused_groups
from qglow.toolchain.timing import Timing

_ESTIMATED = ("instruction", "operation", "kernel", "MACs>", "estimated cycles>", "share>")
CHOSEN = " (measured)"
"""Behind a kernel that tuning found to be better than the one with the least estimate."""
_MEASURED = ("us>", "share>", "MACs/ns>", "of peak>")


def multiply_adds(instruction: Instruction) -> int:
    """Products that an instruction adds up; 0 for all but convolutions and matrix products."""
    if not isinstance(instruction.operation, Convolution | FullyConnected | MatMul):
        return 0
    results = math.prod(instruction.operand("dest").type.shape)
    if isinstance(instruction.operation, Convolution):
        return results * math.prod(instruction.operand("filter").type.shape[1:])
    rows = "src" if isinstance(instruction.operation, FullyConnected) else "lhs"
    return results * instruction.operand(rows).type.shape[-1]


def kernel_document(
    program: Program, target: VectorTarget, timing: Timing | None = None, choices: Choices = NO_CHOICES
) -> Document:
    """The kernel of every instruction with its estimated cost; with `timing`, also the measured one.

    The peak that a rate is compared with is that of its element type. `choices`, by which kernels were
    selected, are marked where they differ from the estimate. Of what an epilogue does, the kernel is that
    instruction's in whose time it is.
    """
    work = [instruction for instruction in program.code if instruction.kernel]
    fused = {member.name: group[0].name for group in fused_groups(program) for member in group[1:]}
    measured = _measured_groups(program, target, choices)
    costs = [parse_kernel(instruction.kernel, target).cost(instruction, target) for instruction in work]
    total = sum(costs) or 1.0
    rows: list[tuple[str, ...]] = [
        (
            i.name,
            i.operation.opcode,
            _kernel(i, target, choices, measured, fused.get(i.name)),
            _count(i),
            f"{cost:.0f}",
            _percent(cost, total),
        )
        for i, cost in zip(work, costs, strict=True)
    ]
    if timing is None:
        return Document(program.name, (Section(f"Kernels for {target.name}", (table(_ESTIMATED, rows),)),))
    all_us = sum(timing.microseconds[i.name] for i in work) or 1.0
    rows = [row + _measured(i, timing, all_us) for i, row in zip(work, rows, strict=True)]
    section = Section(
        f"Kernels for {target.name}, measured",
        (table((*_ESTIMATED, *_MEASURED), rows), Paragraph(_summary(work, timing, all_us))),
    )
    return Document(program.name, (section,))


def _measured_groups(program: Program, target: VectorTarget, choices: Choices) -> set[str]:
    """Names of the first instructions of groups for which another way than the usual one was chosen."""
    if not choices:
        return set()
    groups = epilogue_groups(program, target)
    return {group[0].name for group in groups if epilogue_key(group, target) in choices}


def _kernel(
    instruction: Instruction,
    target: VectorTarget,
    choices: Choices,
    measured: Collection[str],
    first: str | None,
) -> str:
    """The kernel, or for one in the epilogue of a group's first, that."""
    if first is not None:
        return f"epilogue of %{first}" + (CHOSEN if first in measured else "")
    is_measured = choices and choices.get(kernel_key(instruction, target)) == instruction.kernel
    return instruction.kernel + (CHOSEN if is_measured else "")


def _measured(instruction: Instruction, timing: Timing, all_us: float) -> tuple[str, str, str, str]:
    took, products = timing.microseconds[instruction.name], multiply_adds(instruction)
    cells = f"{took:.1f}", _percent(took, all_us)
    if not products or not took:
        return *cells, "", ""
    rate = products / (1e3 * took)
    return *cells, f"{rate:.1f}", f"{100.0 * rate / _peak(instruction, timing):.0f} %"


def _summary(work: list[Instruction], timing: Timing, all_us: float) -> str:
    products = [i for i in work if multiply_adds(i)]
    least = sum(multiply_adds(i) / (1e3 * _peak(i, timing)) for i in products)
    spent = sum(timing.microseconds[i.name] for i in products)
    return (
        f"one thread: {all_us:.1f} us, {spent:.1f} of them in multiply-adds, which take {least:.1f} at the "
        f"peak; peak, measured: {timing.int8_peak.products_per_ns:.1f} MACs/ns in int8, "
        f"{timing.float_peak.products_per_ns:.1f} in float32"
    )


def _peak(instruction: Instruction, timing: Timing) -> float:
    operand = "lhs" if isinstance(instruction.operation, MatMul) else "src"
    is_float = instruction.operand(operand).type.is_float
    return (timing.float_peak if is_float else timing.int8_peak).products_per_ns


def _count(instruction: Instruction) -> str:
    return str(multiply_adds(instruction) or "")


def _percent(part: float, whole: float) -> str:
    return f"{100.0 * part / whole:.1f} %"
