"""Which instructions behind a product become its epilogue."""

from __future__ import annotations

from collections.abc import Sequence

from qglow.core.types import TensorType
from qglow.instructions.liveness import Usage, overlap, same_place
from qglow.instructions.ops.memory import FillPadding
from qglow.instructions.ops.quantize import Lookup
from qglow.instructions.passes.stacking import is_internal, make_stack, next_stack, stacks
from qglow.instructions.program import Buffer, Instruction, Program
from qglow.kernels.choice import Choices, kernel_key
from qglow.kernels.elementwise import Elementwise, elementwise_candidates
from qglow.kernels.epilogue import InEpilogue
from qglow.kernels.isa import AVX512_VBMI, Isa
from qglow.kernels.kernel import parse_kernel
from qglow.kernels.operand import contiguous_runs, is_biased

EPILOGUE, APART = WAYS = "epilogue", "apart"
"""The two ways to execute a group, as choices name them."""
MOST_FOLLOWERS = 4
LARGE_RESULT = 8_000_000
"""Bytes from which on tables were measured to cost less in an epilogue, on Zen 5."""


def fuse_epilogues(program: Program, isa: Isa, choices: Choices) -> None:
    """Make one stack of every group whose choice, or by default the rule, says so.

    A stack that loses members to an epilogue keeps the others.
    """
    for group in epilogue_groups(program, isa):
        chosen = choices.get(epilogue_key(group, isa)) if choices else None
        if (chosen or usual_way(group, isa)) != EPILOGUE:
            continue
        make_stack(program, group, next_stack(program))
        for follower in group[1:]:
            follower.kernel = InEpilogue().describe()


def usual_way(group: Sequence[Instruction], isa: Isa) -> str:
    """What was measured to be better: apart, but for some tables that permutes of bytes look up.

    What an epilogue saves is a store and a load. While results stay in a cache, these hide behind
    arithmetic, of which there is as much in an epilogue, where it waits for the last product of a tile.
    So tables gain over large results, and in slices so narrow that a loop of their own fills no registers.
    """
    has_tables = all(isinstance(member.operation, Lookup) for member in group[1:])
    if not has_tables or isa != AVX512_VBMI:
        return APART
    dest = group[-1].operand("dest")
    run = contiguous_runs(dest.type.shape, [dest.layout.strides], [1]).length
    return EPILOGUE if dest.type.byte_size >= LARGE_RESULT or run < isa.byte_lanes else APART


def epilogue_key(group: Sequence[Instruction], isa: Isa) -> str:
    """What a measured choice is for: all instructions of a group, and what is done by default."""
    return " + ".join([*(kernel_key(member, isa) for member in group), usual_way(group, isa)])


def fused_groups(program: Program) -> list[list[Instruction]]:
    """Instructions whose kernel executes others in its epilogue, each with these."""
    return [group for group in stacks(program) if len(group) > 1 and group[0].operation.has_epilogue]


def epilogue_groups(program: Program, isa: Isa) -> list[list[Instruction]]:
    """Instructions with a kernel that has an epilogue, each with the most followers that fit into it.

    Kernels and padding are settled.
    """
    usage = Usage(program)
    heads = [i for i in program.code if i.operation.has_epilogue and parse_kernel(i.kernel).has_epilogue]
    groups = []
    for head in heads:
        chain = _chain(program, head, usage, isa)
        lengths = range(len(chain), 1, -1)
        fitting = next((chain[:n] for n in lengths if _fits(chain[:n], isa)), None)
        if fitting is not None:
            groups.append(fitting)
    return groups


def _chain(program: Program, head: Instruction, usage: Usage, isa: Isa) -> list[Instruction]:
    """An instruction and those behind it of which each goes on with what only it reads."""
    chain = [head]
    for instruction in program.code[program.code.index(head) + 1 :]:
        if isinstance(instruction.operation, FillPadding) or not instruction.operation.touches_memory:
            continue
        if len(chain) > MOST_FOLLOWERS or not _goes_on(chain, instruction, usage, isa):
            break
        chain.append(instruction)
    return chain


def _goes_on(chain: Sequence[Instruction], instruction: Instruction, usage: Usage, isa: Isa) -> bool:
    if not instruction.operation.data_parallel:
        return False
    value, dest = chain[-1].operand("dest"), instruction.operand("dest")
    if not _is_int8(value, value.type) or not _is_int8(dest, value.type):
        return False
    if not any(isinstance(kernel, Elementwise) for kernel in elementwise_candidates(instruction, isa)):
        return False
    if not any(same_place(value, buffer) for buffer in instruction.reads()):
        return False
    return same_place(value, dest) or is_internal(usage, [*chain, instruction], len(chain) - 1)


def _fits(group: Sequence[Instruction], isa: Isa) -> bool:
    """Whether the first may store the last one's results while it and the others read their operands.

    Besides what the group makes, followers read tables, and what lies as the stored results do.
    """
    dest, made = group[-1].operand("dest"), [member.operand("dest") for member in group]
    others = list(group[0].reads())
    for member in group[1:]:
        tables = InEpilogue().constants(member, isa)
        read = [b for spec, b in member.operands() if spec.name not in tables and spec.name != "dest"]
        beside = [buffer for buffer in read if not any(same_place(buffer, one) for one in made)]
        if not all(_lies_like(buffer, dest) for buffer in beside):
            return False
        if any(overlap(buffer, one) for buffer in beside for one in made):
            return False
        others += beside
    return not any(overlap(buffer, dest) for buffer in others)


def _lies_like(buffer: Buffer, dest: Buffer) -> bool:
    """Whether elements are int8 activations, as far apart from one another as those of the results."""
    if not _is_int8(buffer, dest.type):
        return False
    steps = zip(dest.type.shape, buffer.layout.strides, dest.layout.strides, strict=True)
    return all(size == 1 or own == wanted for size, own, wanted in steps)


def _is_int8(buffer: Buffer, kind: TensorType) -> bool:
    """Whether elements are int8 activations of the same shape."""
    return is_biased(buffer.type) and buffer.type.shape == kind.shape
