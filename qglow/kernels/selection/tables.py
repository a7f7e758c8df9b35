"""Choice of look-ups of columns that read weights where a product has them packed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from qglow.core.types import Array
from qglow.instructions.ops.movement import Gather
from qglow.instructions.program import BufferKind, Instruction, Program
from qglow.kernels.emit.kernel import parse_kernel
from qglow.kernels.emit.packing import ColumnPacking
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.movement.gather_packed import GatherPacked


def read_packed_tables(programs: Sequence[Program], target: VectorTarget) -> None:
    """Give look-ups of columns of constants, in place, kernels that read them as any program packs them.

    The programs are of one model, and their kernels are selected. Constants that no product reads stay as
    they are.
    """
    lookups = [found for program in programs for found in _lookups(program)]
    if not lookups:
        return
    wanted = {data.shape for _, data in lookups}
    known = [p for program in programs for p in _packed(program, target) if p[0].shape in wanted]
    for instruction, data in lookups:
        packing = next((packing for other, packing in known if _same(data, other)), None)
        if packing is not None and packing.fits(data):
            instruction.kernel = GatherPacked.reading(packing).describe()


def _lookups(program: Program) -> Iterator[tuple[Instruction, Array]]:
    """Look-ups of columns of constant matrices, with their data."""
    for instruction in program.code:
        operation = instruction.operation
        if not isinstance(operation, Gather) or operation.axis != 1 or not instruction.kernel:
            continue
        source = instruction.operand("src")
        if source.kind is BufferKind.CONSTANT and source.data is not None and source.data.ndim == 2:
            yield instruction, source.data


def _packed(program: Program, target: VectorTarget) -> Iterator[tuple[Array, ColumnPacking]]:
    """Constants that kernels have packed in a way that look-ups can read."""
    for instruction in program.code:
        if not instruction.kernel:
            continue
        found = parse_kernel(instruction.kernel, target).packings(instruction, target)
        for name, packing in found.items():
            data = instruction.operand(name).data
            if data is not None:
                yield data, packing


def _same(data: Array, other: Array) -> bool:
    if data is other:
        return True
    return data.shape == other.shape and data.dtype == other.dtype and np.array_equal(data, other)
