"""Choosing a kernel for every instruction, before memory is planned."""

from __future__ import annotations

from qglow.core.errors import UnsupportedError
from qglow.instructions.program import Instruction
from qglow.kernels import families as families
from qglow.kernels.isa import Isa
from qglow.kernels.kernel import FACTORIES, Kernel


def candidates(instruction: Instruction, isa: Isa) -> list[Kernel]:
    """Every kernel that can execute the instruction on the target."""
    factories = FACTORIES.get(instruction.operation.opcode, [])
    return [kernel for factory in factories for kernel in factory(instruction, isa)]


def best_kernel(instruction: Instruction, isa: Isa) -> Kernel:
    """The cheapest candidate, the first of equals. Raises UnsupportedError where there is none."""
    found = candidates(instruction, isa)
    if not found:
        types = ", ".join(str(b.type) for b, _ in instruction.accesses())
        raise UnsupportedError(f"no {isa.name} kernel for {instruction.operation.opcode} over {types}")
    return min(found, key=lambda kernel: kernel.cost(instruction, isa))
