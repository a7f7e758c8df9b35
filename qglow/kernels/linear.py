"""Matrix products of rows with a constant matrix, on the tiles of convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.types import Array
from qglow.instructions.ops.linear import FullyConnected
from qglow.instructions.program import Instruction
from qglow.kernels.conv import TiledProduct, constant_filter, pointers, stored_half, tile_of
from qglow.kernels.conv_blocking import blocking_cost, choose_blocking
from qglow.kernels.conv_geometry import linear_geometry
from qglow.kernels.conv_packing import must_clamp_first, product_constants
from qglow.kernels.isa import Isa
from qglow.kernels.kernel import Kernel, Site, candidates_for, kernel


@kernel
@dataclass(frozen=True)
class TiledFullyConnected(TiledProduct):
    """Rows of `src` are pixels; packed weights are read once for every tile of rows."""

    name: ClassVar[str] = "tiledfullyconnected"

    def constants(self, instruction: Instruction, isa: Isa) -> dict[str, Array]:
        """Packed filter, bias and multiplier."""
        tile = tile_of(instruction, isa)
        filters = columns(instruction)
        return product_constants(instruction, filters, linear_geometry(instruction), tile, self.vectors, isa)

    def variants(self, instruction: Instruction, isa: Isa) -> list[Kernel]:
        """Other tiles."""
        tile = tile_of(instruction, isa)
        return self.other_blockings(linear_geometry(instruction), tile)

    def cost(self, instruction: Instruction, isa: Isa) -> float:
        """Cycles of the product."""
        tile = tile_of(instruction, isa)
        return blocking_cost(linear_geometry(instruction), tile, self.blocking)

    def emit(self, site: Site) -> None:
        """The product."""
        self.product(site, linear_geometry(site.instruction)).emit(pointers(site))


def columns(instruction: Instruction) -> Array:
    """The filter K x N as one row of weights an output."""
    return np.ascontiguousarray(constant_filter(instruction).T)


@candidates_for(FullyConnected)
def tiled_products(instruction: Instruction, isa: Isa) -> list[Kernel]:
    """The tile with the least estimated cost."""
    if instruction.operand("filter").data is None:
        return []
    geometry = linear_geometry(instruction)
    blocking = choose_blocking(geometry, tile_of(instruction, isa))
    clamp_first = must_clamp_first(instruction, columns(instruction))
    stored = stored_half(instruction)
    return [TiledFullyConnected(blocking.pixels, blocking.vectors, blocking.by_rows, clamp_first, stored)]
