"""Choice of kernels that pack weights as those of another program do, so that both read the same memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qglow.instructions.program import BufferKind, Instruction, Program
from qglow.kernels.emit.kernel import Kernel, parse_kernel
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.products.linear import TiledFullyConnected

SMALL = 1 << 20
"""Bytes of constants that stay in a near cache, where the widest tile counts for more than one copy."""


def kernels_alike(
    program: Program, like: Sequence[Program], target: VectorTarget, best: Mapping[Instruction, Kernel]
) -> dict[Instruction, Kernel]:
    """Kernels for a program of the same model with other numbers of rows, in place of the best ones.

    like: their kernels are selected. Weights of a linear layer come in blocks of as many vectors as in the
    first that has it.
    Large weights are read from distant memory, for which narrow blocks of few rows are fast enough.
    """
    if sum(buffer.byte_size for buffer in program.constants) < SMALL:
        return {}
    known: dict[tuple[str, str], Kernel] = {}
    for instruction in (i for other in like for i in other.code if i.kernel and _filter(i)):
        known.setdefault(_product(instruction), parse_kernel(instruction.kernel, target))
    found: dict[Instruction, Kernel] = {}
    for instruction, kernel in best.items():
        wanted = known.get(_product(instruction)) if _filter(instruction) else None
        # Not those of special weights, which have an order of their own.
        if type(kernel) is not TiledFullyConnected or type(wanted) is not TiledFullyConnected:
            continue
        if kernel.vectors != wanted.vectors:
            narrower = kernel.in_blocks_of(wanted.vectors, instruction, target)
            if narrower is not None:
                found[instruction] = narrower
    return found


def _product(instruction: Instruction) -> tuple[str, str]:
    """Name of a product that is the same in programs of one model."""
    return instruction.operation.opcode, _filter(instruction)


def _filter(instruction: Instruction) -> str:
    """Name of the constant weights; empty where there are none."""
    for spec, buffer in instruction.operands():
        if spec.name == "filter" and buffer.kind is BufferKind.CONSTANT:
            return buffer.name
    return ""
