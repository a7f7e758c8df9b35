"""Products of integers of rows with the matrices of experts, weights in blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from qglow.core.types import Array
from qglow.instructions.ops.experts import ExpertBlockGemm
from qglow.instructions.program import Instruction
from qglow.kernels.emit.builder import Index, Value
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.products.experts import ExpertKernel, ExpertPlace, Panel, expert_panels
from qglow.kernels.products.integer_blocks import (
    IntegerBlockProduct,
    RowsPanel,
    has_known_weights,
    in_integer_panels,
    most_rows,
    panel_vectors,
)

SLACK = 64
"""Bytes behind copied rows: the last step of a row may read some that are not its own."""


@kernel
@dataclass(frozen=True)
class ExpertIntegerProduct(ExpertKernel, IntegerBlockProduct):
    """Product whose weights in blocks are multiplied as integers, with one tile for rows of an expert."""

    name: ClassVar[str] = "expertintegerproduct"

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """Words, scales, zero points, sums of weights and bias in the order of experts and panels."""
        operation, depth = instruction.operation, instruction.operand("src").type.shape[1]
        assert isinstance(operation, ExpertBlockGemm)
        biased = bool(target.activation_bias)

        def make(data: Mapping[str, Array]) -> dict[str, Array]:
            return in_integer_panels(data, operation, depth, self.vectors, target, biased)

        return expert_panels(instruction, self.vectors * target.float_lanes, make)

    def scratch_bytes(self, instruction: Instruction) -> int:
        """Bytes of rows in the order of their experts, and of their sums over blocks."""
        ordered = ExpertKernel.scratch_bytes(self, instruction)
        return ordered + SLACK + IntegerBlockProduct.scratch_bytes(self, instruction)

    def prepare(self, site: Site) -> None:
        """Emit the sums of rows where zero points are multiplied with them."""
        IntegerBlockProduct.prepare(self, site)

    def panel(self, site: Site, number: Index, used: int, place: ExpertPlace) -> _IntegerPanel:
        """Emitter of one panel."""
        return _IntegerPanel(site, self.rows, self.vectors, number, used, place)


@dataclass(frozen=True)
class _IntegerPanel(RowsPanel, Panel):
    """Emitter of one panel."""

    place: ExpertPlace

    def scales_of_rows(self, row: Index, height: int) -> list[Value]:
        """Addresses of the scales of the rows at places from `row` on."""
        return self.place.scales_of_rows(self.site, row, height)

    def dest_rows(self, row: Index, height: int) -> list[Value]:
        """Addresses in the results of the rows at places from `row` on."""
        return self.place.dest_rows(self.site, row, height)


@candidates_for(ExpertBlockGemm)
def expert_integer_products(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the kernel for rows with scales; none for weights that are computed."""
    if not has_known_weights(instruction):
        return []
    rows = instruction.operand("dest").type.shape[0]
    most = min(rows, most_rows(target))
    return [ExpertIntegerProduct(1 << max(most, 1).bit_length() - 1, panel_vectors(instruction, target))]
