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
from qglow.kernels.kernel import Kernel, parse_kernel
from qglow.kernels.operand import contiguous_runs, is_biased
from qglow.kernels.pool_epilogue import PoolInEpilogue

EPILOGUE, POOL_APART, APART = "epilogue", "pool apart", "apart"
"""The ways to execute a group, as choices name them: all in the epilogue, all but a pool, or none."""
MOST_FOLLOWERS = 4
LARGE_RESULT = 8_000_000
"""Bytes from which on tables were measured to cost less in an epilogue, on Zen 5."""


def fuse_epilogues(program: Program, isa: Isa, choices: Choices) -> None:
    """Make one stack of every group whose choice, or by default the rule, says so.

    A stack that loses members to an epilogue keeps the others.
    """
    for group in epilogue_groups(program, isa):
        chosen = choices.get(epilogue_key(group, isa)) if choices else None
        way = chosen or usual_way(group, isa)
        if way == APART:
            continue
        fused = group[:-1] if way == POOL_APART else group
        make_stack(program, fused, next_stack(program))
        for follower in fused[1:]:
            follower.kernel = _kernel_of(follower).describe()


def _kernel_of(follower: Instruction) -> Kernel:
    return InEpilogue() if follower.operation.data_parallel else PoolInEpilogue()


def ways(group: Sequence[Instruction], isa: Isa) -> tuple[str, ...]:
    """The ways to execute a group."""
    parts = has_pool(group) and len(group) > 2 and _fits(group[:-1], isa)
    return (EPILOGUE, POOL_APART, APART) if parts else (EPILOGUE, APART)


def usual_way(group: Sequence[Instruction], isa: Isa) -> str:
    """What was measured to be better: apart, but for some tables that permutes of bytes look up.

    What an epilogue saves is a store and a load. While results stay in a cache, these hide behind
    arithmetic, of which there is as much in an epilogue, where it waits for the last product of a tile.
    So tables gain over large results, and in slices so narrow that a loop of their own fills no registers.
    A pool's own loop takes so little that nothing is to be gained.
    """
    if has_pool(group):
        return POOL_APART if len(group) > 2 and usual_way(group[:-1], isa) == EPILOGUE else APART
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
        if len(chain) > MOST_FOLLOWERS:
            break
        if _pools(chain, instruction, usage):
            return [*chain, instruction]
        if not _goes_on(chain, instruction, usage, isa):
            break
        chain.append(instruction)
    return chain


def _pools(chain: Sequence[Instruction], instruction: Instruction, usage: Usage) -> bool:
    """Whether an instruction is a pool that alone reads what a chain makes, image by image."""
    has_pool = parse_kernel(chain[0].kernel).has_pool
    if not has_pool or not instruction.operation.ends_epilogue(instruction.types):
        return False
    value, src = chain[-1].operand("dest"), instruction.operand("src")
    if not is_biased(value.type) or not is_biased(instruction.operand("dest").type):
        return False
    images, channels = src.type.shape[0], src.type.shape[-1]
    whole = value.type.shape[-1] == channels and value.type.shape[0] % images == 0
    return whole and _same_bytes(value, src) and is_internal(usage, [*chain, instruction], len(chain) - 1)


def _same_bytes(one: Buffer, other: Buffer) -> bool:
    """Whether both are all of one buffer without padding, each in a shape of its own."""
    alike = one.root is other.root and one.type.size == other.type.size == one.root.type.size
    return alike and one.is_contiguous and other.is_contiguous


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

    Besides what the group makes, followers read tables, and what lies as the results of the first do.
    """
    made = [member.operand("dest") for member in _elementwise(group)]
    beside, place = _beside(group, isa), result_place(group, isa)
    if not all(_lies_like(buffer, place, made[0].type) for buffer in beside):
        return False
    if any(overlap(buffer, one) for buffer in beside for one in made):
        return False
    return not any(overlap(b, group[-1].operand("dest")) for b in [*group[0].reads(), *beside])


def result_place(group: Sequence[Instruction], isa: Isa) -> Buffer:
    """A buffer whose elements are as far apart as results of the first of a group are to be.

    It is where results are stored. Those that a pool adds up are nowhere, so that they can be as far apart
    as what followers read beside them.
    """
    beside = _beside(group, isa) if has_pool(group) else []
    return beside[0] if beside else _elementwise(group)[-1].operand("dest")


def has_pool(group: Sequence[Instruction]) -> bool:
    """Whether results are added up by the last of a group, not stored."""
    return not group[-1].operation.data_parallel


def _elementwise(group: Sequence[Instruction]) -> Sequence[Instruction]:
    return group[:-1] if has_pool(group) else group


def _beside(group: Sequence[Instruction], isa: Isa) -> list[Buffer]:
    """What followers read that the group has not made, but for tables."""
    members, found = _elementwise(group), []
    made = [member.operand("dest") for member in members]
    for member in members[1:]:
        tables = InEpilogue().constants(member, isa)
        read = [b for spec, b in member.operands() if spec.name not in tables and spec.name != "dest"]
        found += [buffer for buffer in read if not any(same_place(buffer, one) for one in made)]
    return found


def _lies_like(buffer: Buffer, place: Buffer, kind: TensorType) -> bool:
    """Whether elements are int8 activations of this shape, as far from one another as those of a place."""
    if not _is_int8(buffer, kind):
        return False
    steps = zip(kind.shape, buffer.layout.strides, place.layout.strides, strict=True)
    return all(size == 1 or own == wanted for size, own, wanted in steps)


def _is_int8(buffer: Buffer, kind: TensorType) -> bool:
    """Whether elements are int8 activations of the same shape."""
    return is_biased(buffer.type) and buffer.type.shape == kind.shape
