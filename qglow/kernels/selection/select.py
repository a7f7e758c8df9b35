"""Choice of a kernel for every instruction, before memory is planned.

Kernels may wish for operands with zero-point padding around the image. A wish is granted where
the buffer is an activation of its own (no reshape is a view of it) and every instruction that touches it
can handle any strides; then a `fillpadding` goes before its first writer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from qglow.core.types import ElementType, TensorType
from qglow.instructions.liveness import Usage
from qglow.instructions.operation import Access
from qglow.instructions.ops.elementwise import Affine
from qglow.instructions.ops.memory import AllocActivation, DeallocActivation, FillPadding
from qglow.instructions.ops.quantize import Lookup
from qglow.instructions.passes.code import Code
from qglow.instructions.passes.stacking import is_internal, stacks
from qglow.instructions.program import NO_PADDING, Buffer, BufferKind, Instruction, Padding, Program
from qglow.kernels.elementwise.elementwise import Elementwise, elementwise_candidates, is_chain
from qglow.kernels.emit.kernel import Kernel
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.selection.alike import kernels_alike
from qglow.kernels.selection.choice import NO_CHOICES, Choices, best_kernel
from qglow.kernels.selection.epilogue_choice import fuse_epilogues
from qglow.kernels.selection.tables import read_packed_tables


def select_kernels(
    program: Program,
    target: VectorTarget,
    choices: Choices = NO_CHOICES,
    epilogues: bool = True,
    like: Sequence[Program] = (),
) -> None:
    """Write the best kernel on every instruction, those inside of others too; add padding and scratch.

    The best is what `choices` say, else the cheapest by estimate. Without `epilogues`
    every instruction stores its results. like: programs of the same model whose packed weights this one
    is to share, those of the first before others. Changes the program in place; memory is planned afterwards.
    Raises UnsupportedError for an instruction without a kernel.
    """
    for body in program.regions():
        select_kernels(body, target, choices, epilogues)
    work = [i for i in program.code if i.operation.touches_memory]
    best = {instruction: best_kernel(instruction, target, choices) for instruction in work}
    if like:
        best |= kernels_alike(program, like, target, best)
    usage, code = Usage(program), Code(program)
    for buffer, padding in (_wishes(best) if target.pads_images else {}).items():
        if _can_be_padded(buffer, usage):
            buffer.padding = padding
            _fill_before_first_write(code, buffer, usage)
            for use in usage.uses(buffer):
                best.pop(use.instruction, None)
    for instruction in [i for i in code.order if i.operation.touches_memory]:
        kernel = best.get(instruction) or best_kernel(instruction, target, choices)
        instruction.kernel = kernel.describe()
        _add_scratch(code, instruction, kernel.scratch_bytes(instruction))
    code.finish()
    read_packed_tables([program], target)
    if epilogues:
        fuse_epilogues(program, target, choices)
    usage = Usage(program)
    for group in stacks(program):
        if not group[0].operation.has_epilogue:
            _settle_stack(group, usage, target)


def _settle_stack(group: list[Instruction], usage: Usage, target: VectorTarget) -> None:
    """Give all members of a stack the kernel that can share a loop, or dissolve the stack."""
    alone = [elementwise_candidates(member, target) for member in group if member.stack is not None]
    kernels = [kernel for found in alone for kernel in found if isinstance(kernel, Elementwise)]
    if len(kernels) < len(group) or not _gains(group, usage, target):
        for member in group:
            member.stack = None
        return
    lanes = _common_lanes(group, [kernel.lanes for kernel in kernels])
    for member, kernel in zip(group, kernels, strict=True):
        member.kernel = replace(kernel, lanes=lanes).describe()


def _common_lanes(group: list[Instruction], lanes: list[int]) -> int:
    """Lanes for the loop of a stack: the most of any if there is a table or function, else the fewest."""
    most = any(isinstance(member.operation, Lookup) or is_chain(member.operation) for member in group)
    return max(lanes) if most else min(lanes)


def _gains(group: list[Instruction], usage: Usage, target: VectorTarget) -> bool:
    """Whether one loop is better: some result stays in registers, and none needs a loop of its own.

    Loading less while storing as much was measured to gain nothing: the loops are bound by arithmetic.
    """
    if any(_has_uneven_channels(member, target) for member in group):
        return False
    return any(is_internal(usage, group, index) for index in range(len(group)))


def _has_uneven_channels(instruction: Instruction, target: VectorTarget) -> bool:
    """Whether an affine map's channels fill no vectors, so that a kernel of its own is better."""
    channels = (1, *instruction.operand("dest").type.shape)[-1]
    return isinstance(instruction.operation, Affine) and channels % target.loop_lanes != 0


def _wishes(kernels: Mapping[Instruction, Kernel]) -> dict[Buffer, Padding]:
    """Padding that kernels wish for around each buffer: the most that any wishes for on every side."""
    wishes: dict[Buffer, Padding] = {}
    for instruction, kernel in kernels.items():
        for name, (top, left, bottom, right) in kernel.paddings(instruction).items():
            buffer = instruction.operand(name)
            have = wishes.get(buffer, NO_PADDING)
            wishes[buffer] = (
                max(have[0], top),
                max(have[1], left),
                max(have[2], bottom),
                max(have[3], right),
            )
    return {buffer: padding for buffer, padding in wishes.items() if padding != NO_PADDING}


def _can_be_padded(buffer: Buffer, usage: Usage) -> bool:
    if buffer.kind is not BufferKind.ACTIVATION or len(buffer.type.shape) != 4:
        return False
    if any(not view.offsets or view.base is not buffer for view in usage.views(buffer)):
        return False
    return all(use.operand.strided for use in usage.uses(buffer))


def _fill_before_first_write(code: Code, buffer: Buffer, usage: Usage) -> None:
    first = next(use.instruction for use in usage.uses(buffer) if use.writes)
    name = code.unique_name(f"pad_{buffer.name}")
    fill = Instruction(name, FillPadding(buffer.padding), (buffer,), origin=first.origin)
    fill.live = first.live if first.writes() == [buffer] else ()
    anchor, before = first, code.order.previous(first)
    while first.stack is not None and before is not None and before.stack == first.stack:
        anchor, before = before, code.order.previous(before)  # a stack stays in one piece
    code.insert_before(anchor, fill)


def _add_scratch(code: Code, instruction: Instruction, size: int) -> None:
    """Add working memory of `size` bytes that lives during this instruction only."""
    if not size:
        return
    specs = instruction.operation.signature
    place = next(i for i, spec in enumerate(specs) if spec.access is Access.SCRATCH)
    name = code.unique_name(f"{instruction.name}_scratch")
    buffer = Buffer(name, TensorType(ElementType.INT8, (size,)), BufferKind.ACTIVATION)
    buffers = list(instruction.buffers)
    buffers[place] = buffer
    code.change(instruction, instruction.operation, tuple(buffers))
    ends = Instruction(code.unique_name(f"dealloc_{name}"), DeallocActivation(), (buffer,))
    code.insert_before(instruction, Instruction(name, AllocActivation(), (buffer,)))
    code.insert_before(code.order.next(instruction), ends)
