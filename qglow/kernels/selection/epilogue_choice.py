"""Choice of the instructions after a product that become its epilogue."""

from __future__ import annotations

from collections.abc import Sequence

from qglow.core.ordered import Ordered
from qglow.core.types import TensorType
from qglow.instructions.liveness import Usage, overlap, same_place
from qglow.instructions.ops.memory import FillPadding
from qglow.instructions.ops.quantize import Lookup
from qglow.instructions.passes.stacking import is_internal, make_stack, next_stack, stacks
from qglow.instructions.program import Buffer, Instruction, Program
from qglow.kernels.elementwise.elementwise import Elementwise, elementwise_candidates
from qglow.kernels.emit.kernel import Kernel, parse_kernel
from qglow.kernels.emit.operand import contiguous_runs, is_int8_activation
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.pooling.mean_epilogue import MeanInEpilogue
from qglow.kernels.selection.choice import Choices, kernel_key
from qglow.kernels.selection.epilogue import InEpilogue

EPILOGUE, MEAN_APART, APART = "epilogue", "pool apart", "apart"
"""The ways to execute a group, as choices name them: all in the epilogue, all but a mean, or none."""
MOST_FOLLOWERS = 4


def fuse_epilogues(program: Program, target: VectorTarget, choices: Choices) -> None:
    """Make one stack of every group whose measured choice says so, or else `usual_way`.

    A stack that loses members to an epilogue keeps the others.
    """
    order, number = Ordered(program.code), next_stack(program)
    for group in epilogue_groups(program, target):
        chosen = choices.get(epilogue_key(group, target)) if choices else None
        way = chosen or usual_way(group, target)
        if way == APART:
            continue
        fused = group[:-1] if way == MEAN_APART else group
        make_stack(order, fused, number)
        number += 1
        for follower in fused[1:]:
            follower.kernel = _kernel_of(follower).describe()
    program.code[:] = order


def _kernel_of(follower: Instruction) -> Kernel:
    return InEpilogue() if follower.operation.data_parallel else MeanInEpilogue()


def ways(group: Sequence[Instruction], target: VectorTarget) -> tuple[str, ...]:
    """The ways to execute a group."""
    parts = ends_in_mean(group) and len(group) > 2 and _fits(group[:-1], target)
    return (EPILOGUE, MEAN_APART, APART) if parts else (EPILOGUE, APART)


def usual_way(group: Sequence[Instruction], target: VectorTarget) -> str:
    """The way that was measured to be better: apart, except for floats and some tables.

    An epilogue saves a store and a load. While results stay in a cache, a separate loop hides these behind
    its arithmetic; an epilogue has the same arithmetic, which has to wait for the last product of a tile. So
    tables, looked up by byte permutes, gain from an epilogue only if results are large, or if contiguous runs
    are so short that a separate loop fills no registers. A mean's own loop takes so little time that there is
    nothing to gain. Floats are passed by matrix units alone, which multiply meanwhile.
    """
    if ends_in_mean(group):
        return MEAN_APART if len(group) > 2 and usual_way(group[:-1], target) == EPILOGUE else APART
    if _passes_floats(group[0], target):
        return EPILOGUE
    has_tables = all(isinstance(member.operation, Lookup) for member in group[1:])
    if not has_tables or target.fuses_tables_from is None:
        return APART
    dest = group[-1].operand("dest")
    run = contiguous_runs(dest.type.shape, [dest.layout.strides], [1]).length
    return EPILOGUE if dest.type.byte_size >= target.fuses_tables_from or run < target.byte_lanes else APART


def epilogue_key(group: Sequence[Instruction], target: VectorTarget) -> str:
    """Key of a measured choice: all instructions of a group, and the usual way to execute it."""
    return " + ".join([*(kernel_key(member, target) for member in group), usual_way(group, target)])


def fused_groups(program: Program) -> list[list[Instruction]]:
    """Groups of instructions that one kernel executes: the first one, and those in its epilogue."""
    return [group for group in stacks(program) if len(group) > 1 and group[0].operation.has_epilogue]


def epilogue_groups(program: Program, target: VectorTarget) -> list[list[Instruction]]:
    """Groups that can be fused: an instruction whose kernel has an epilogue, and its followers.

    A group has as many followers as fit. Kernels and padding have to be settled before.
    """
    usage, order = Usage(program), Ordered(program.code)
    heads = [
        i for i in program.code if i.operation.has_epilogue and parse_kernel(i.kernel, target).has_epilogue
    ]
    groups = []
    for head in heads:
        chain = _chain(order, head, usage, target)
        lengths = range(len(chain), 1, -1)
        fitting = next((chain[:n] for n in lengths if _fits(chain[:n], target)), None)
        if fitting is not None:
            groups.append(fitting)
    return groups


def _chain(
    order: Ordered[Instruction], head: Instruction, usage: Usage, target: VectorTarget
) -> list[Instruction]:
    """Find the followers of an instruction that each take the result of the one before as its only reader.

    Returns them after the instruction itself.
    """
    chain = [head]
    for instruction in order.following(head):
        if isinstance(instruction.operation, FillPadding) or not instruction.operation.touches_memory:
            continue
        if len(chain) > MOST_FOLLOWERS:
            break
        if _is_mean_of(chain, instruction, usage, target):
            return [*chain, instruction]
        if not _goes_on(chain, instruction, usage, target):
            break
        chain.append(instruction)
    return chain


def _is_mean_of(
    chain: Sequence[Instruction], instruction: Instruction, usage: Usage, target: VectorTarget
) -> bool:
    """Whether an instruction is a global mean over the images of a chain's result, and its only reader."""
    accumulates_mean = parse_kernel(chain[0].kernel, target).accumulates_mean
    if not accumulates_mean or not instruction.operation.ends_epilogue(instruction.types):
        return False
    if not target.interleaves:
        return False  # sums of a mean are kept in packed words
    value, src = chain[-1].operand("dest"), instruction.operand("src")
    if not is_int8_activation(value.type) or not is_int8_activation(instruction.operand("dest").type):
        return False
    images, channels = src.type.shape[0], src.type.shape[-1]
    whole = value.type.shape[-1] == channels and value.type.shape[0] % images == 0
    return whole and _same_bytes(value, src) and is_internal(usage, [*chain, instruction], len(chain) - 1)


def _same_bytes(one: Buffer, other: Buffer) -> bool:
    """Whether both cover the whole of one buffer without padding; their shapes may differ."""
    alike = one.root is other.root and one.type.size == other.type.size == one.root.type.size
    return alike and one.is_contiguous and other.is_contiguous


def _goes_on(
    chain: Sequence[Instruction], instruction: Instruction, usage: Usage, target: VectorTarget
) -> bool:
    if not instruction.operation.data_parallel:
        return False
    value, dest = chain[-1].operand("dest"), instruction.operand("dest")
    floats = _passes_floats(chain[0], target)
    if not _passes(value, value.type, floats) or not _passes(dest, value.type, floats):
        return False
    if floats and instruction.live != chain[0].live:
        return False  # what limits the product would not limit what follows
    if not any(isinstance(kernel, Elementwise) for kernel in elementwise_candidates(instruction, target)):
        return False
    if not any(same_place(value, buffer) for buffer in instruction.reads()):
        return False
    return same_place(value, dest) or is_internal(usage, [*chain, instruction], len(chain) - 1)


def _fits(group: Sequence[Instruction], target: VectorTarget) -> bool:
    """Whether the first instruction may store the last one's results while all of them read their operands.

    Besides the group's own results, followers may read tables, and operands with the strides of the results.
    """
    made = [member.operand("dest") for member in _elementwise(group)]
    floats = _passes_floats(group[0], target)
    beside, place = _beside(group, target), result_place(group, target)
    if not all(_lies_like(buffer, place, made[0].type, floats) for buffer in beside):
        return False
    # Elements of another size would begin at another address.
    if place.type.element.size != made[0].type.element.size and place.layout.offset:
        return False
    if any(overlap(buffer, one) for buffer in beside for one in made):
        return False
    return not any(overlap(b, group[-1].operand("dest")) for b in [*group[0].reads(), *beside])


def result_place(group: Sequence[Instruction], target: VectorTarget) -> Buffer:
    """Buffer whose strides the first instruction of a group uses for its results.

    It is the buffer where results are stored. Results that a mean adds up are not stored, so they can take
    the strides of an operand that followers read beside them.
    """
    beside = _beside(group, target) if ends_in_mean(group) else []
    return beside[0] if beside else _elementwise(group)[-1].operand("dest")


def ends_in_mean(group: Sequence[Instruction]) -> bool:
    """Whether the last instruction of a group is a mean that adds up results, which then are not stored."""
    return not group[-1].operation.data_parallel


def _elementwise(group: Sequence[Instruction]) -> Sequence[Instruction]:
    return group[:-1] if ends_in_mean(group) else group


def _beside(group: Sequence[Instruction], target: VectorTarget) -> list[Buffer]:
    """Buffers that followers read, except tables and results of the group."""
    members, found = _elementwise(group), []
    made = [member.operand("dest") for member in members]
    for member in members[1:]:
        tables = InEpilogue().constants(member, target)
        read = [b for spec, b in member.operands() if spec.name not in tables and spec.name != "dest"]
        found += [buffer for buffer in read if not any(same_place(buffer, one) for one in made)]
    return found


def _lies_like(buffer: Buffer, place: Buffer, kind: TensorType, floats: bool) -> bool:
    """Whether a buffer holds elements that may be passed, of this shape, with the strides of `place`."""
    if not _passes(buffer, kind, floats):
        return False
    if buffer.type.shape != kind.shape or place.type.shape != kind.shape:
        return buffer.is_contiguous and place.is_contiguous
    steps = zip(kind.shape, buffer.layout.strides, place.layout.strides, strict=True)
    return all(size == 1 or own == wanted for size, own, wanted in steps)


def _passes_floats(head: Instruction, target: VectorTarget) -> bool:
    """Whether an instruction passes float results through its epilogue."""
    return head.operand("dest").type.is_float and parse_kernel(head.kernel, target).passes_floats


def _passes(buffer: Buffer, kind: TensorType, floats: bool) -> bool:
    """Whether elements are int8 activations of the same shape.

    With `floats` they may be float32, and of another shape of equal size if they lie in one run.
    """
    in_one_run = floats and buffer.type.size == kind.size and buffer.is_contiguous
    passed = is_int8_activation(buffer.type) or (floats and buffer.type.is_float)
    return passed and (buffer.type.shape == kind.shape or in_one_run)
