"""The kernel of one instruction: the cheapest by estimate, or what somebody measured to be best."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qglow.core.errors import UnsupportedError
from qglow.core.text import format_attributes
from qglow.instructions.operation import Access
from qglow.instructions.program import Instruction
from qglow.kernels import families as families
from qglow.kernels.isa import Isa
from qglow.kernels.kernel import FACTORIES, Kernel

Choices = Mapping[str, str]
"""Kernels in words by `kernel_key`, as somebody measured that they are best."""

NO_CHOICES: Choices = MappingProxyType({})


def candidates(instruction: Instruction, isa: Isa) -> list[Kernel]:
    """Every kernel that can execute the instruction on the target."""
    factories = FACTORIES.get(instruction.operation.opcode, [])
    return [kernel for factory in factories for kernel in factory(instruction, isa)]


def alternatives(instruction: Instruction, isa: Isa) -> list[Kernel]:
    """Every kernel that may be measured for the instruction, the one with the least estimate first."""
    best = best_kernel(instruction, isa)
    others = [
        k for k in candidates(instruction, isa) if k.paddings(instruction) == best.paddings(instruction)
    ]
    found = [best, *others, *(variant for k in [best, *others] for variant in k.variants(instruction, isa))]
    return list(dict.fromkeys(found))


def kernel_key(instruction: Instruction, isa: Isa) -> str:
    """What a measured choice is for: operation, operands with their layouts, and the estimate's choice.

    Scales do not matter, and neither does working memory, which is not there before a kernel is chosen.
    """
    operands = [
        f"{spec.name} {buffer.type.element.value} {list(buffer.type.shape)} by {list(buffer.layout.strides)}"
        for spec, buffer in instruction.operands()
        if spec.access is not Access.SCRATCH
    ]
    operation = instruction.operation.opcode + format_attributes(instruction.operation)
    return "; ".join([operation, *operands, best_kernel(instruction, isa).describe()])


def best_kernel(instruction: Instruction, isa: Isa, choices: Choices = NO_CHOICES) -> Kernel:
    """What `choices` name where that is an alternative, else the cheapest candidate, the first of equals.

    Raises UnsupportedError where there is none.
    """
    found = candidates(instruction, isa)
    if not found:
        types = ", ".join(str(b.type) for b, _ in instruction.accesses())
        raise UnsupportedError(
            f"%{instruction.name}: no {isa.name} kernel for {instruction.operation.opcode} over {types}"
        )
    best = min(found, key=lambda kernel: kernel.cost(instruction, isa))
    wanted = choices.get(kernel_key(instruction, isa)) if choices else None
    if wanted is None:
        return best
    return next((k for k in alternatives(instruction, isa) if k.describe() == wanted), best)
