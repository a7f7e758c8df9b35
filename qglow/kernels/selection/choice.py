"""Choice of the kernel for one instruction: the cheapest by estimate, or one measured to be best."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qglow.core.errors import UnsupportedError
from qglow.core.text import format_attributes
from qglow.instructions.operation import Access
from qglow.instructions.program import Instruction
from qglow.kernels.emit.kernel import Kernel, factories_for
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.selection import families as families

Choices = Mapping[str, str]
"""Kernels that were measured to be best, as `Kernel.describe` writes them, by `kernel_key`."""

NO_CHOICES: Choices = MappingProxyType({})


def candidates(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Every kernel that can execute the instruction on the target."""
    factories = factories_for(instruction.operation, target)
    return [kernel for factory in factories for kernel in factory(instruction, target)]


def alternatives(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Every kernel that may be measured for the instruction, the cheapest by estimate first.

    All of them wish for the same padding as the first.
    """
    best = best_kernel(instruction, target)
    others = [
        k for k in candidates(instruction, target) if k.paddings(instruction) == best.paddings(instruction)
    ]
    found = [
        best,
        *others,
        *(variant for k in [best, *others] for variant in k.variants(instruction, target)),
    ]
    return list(dict.fromkeys(found))


def kernel_key(instruction: Instruction, target: VectorTarget) -> str:
    """Key of a measured choice: operation, operands with their layouts, and the estimate's choice.

    Scales are no part of it, nor is working memory, which is added only after a kernel is chosen.
    """
    operands = [
        f"{spec.name} {buffer.type.element.value} {list(buffer.type.shape)} by {list(buffer.layout.strides)}"
        for spec, buffer in instruction.operands()
        if spec.access is not Access.SCRATCH
    ]
    operation = instruction.operation.opcode + format_attributes(instruction.operation)
    return "; ".join([operation, *operands, best_kernel(instruction, target).describe()])


def best_kernel(instruction: Instruction, target: VectorTarget, choices: Choices = NO_CHOICES) -> Kernel:
    """Kernel that `choices` name if it is an alternative, else the cheapest candidate, the first of equals.

    Raises UnsupportedError if there is no candidate.
    """
    found = candidates(instruction, target)
    if not found:
        types = ", ".join(str(b.type) for b, _ in instruction.accesses())
        raise UnsupportedError(
            f"%{instruction.name}: no {target.name} kernel for {instruction.operation.opcode} over {types}"
        )
    best = min(found, key=lambda kernel: kernel.cost(instruction, target))
    wanted = choices.get(kernel_key(instruction, target)) if choices else None
    if wanted is None:
        return best
    return next((k for k in alternatives(instruction, target) if k.describe() == wanted), best)
