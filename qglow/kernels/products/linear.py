"""Products of the rows of a matrix with a constant matrix, on the register tiles of convolutions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qglow.core.types import Array
from qglow.instructions.ops.linear import FullyConnected
from qglow.instructions.program import Instruction
from qglow.kernels.convolution.conv import (
    TiledProduct,
    constant_filter,
    multiplications,
    pointers,
    stored_half,
    tile_of,
)
from qglow.kernels.emit.exact_half import exact_half
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.packing import ColumnPacking
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.tiled.blocking import blocking_cost, choose_blocking, divide, ranked_blockings
from qglow.kernels.tiled.geometry import linear_geometry
from qglow.kernels.tiled.packing import must_clamp_first, product_constants
from qglow.kernels.tiles.tile import DotTile, FloatTile


@kernel
@dataclass(frozen=True)
class TiledFullyConnected(TiledProduct):
    """Fully connected layer as a convolution of one element: every row of `src` is a pixel.

    A tile of several rows reads the packed weights once for all of them.
    """

    name: ClassVar[str] = "tiledfullyconnected"

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """Packed filter and bias, for int8 also multipliers."""
        tile = self.tile(instruction, target)
        geometry = linear_geometry(instruction).with_step(tile.step)
        return product_constants(instruction, columns(instruction), geometry, tile, self.vectors, target)

    def packings(self, instruction: Instruction, target: VectorTarget) -> dict[str, ColumnPacking]:
        """Blocks of vectors of columns, of tiles whose steps are elements or four bytes in order."""
        tile = self.tile(instruction, target)
        if not isinstance(tile, FloatTile | DotTile):
            return {}
        pieces = divide(-(-instruction.operand("filter").type.shape[1] // tile.lanes), self.vectors)
        first, *others = pieces
        narrow = others[0].size * tile.lanes if others else 0
        # Look-ups read bytes as activations, which memory holds with the target's bias.
        flipped = not tile.is_float and target.activation_bias != 0
        # Look-ups in a table of 16 bits get elements as they are.
        weights = "" if instruction.operand("filter").type.is_half else self.weights
        wide = first.size * tile.lanes
        return {"filter": ColumnPacking(wide, first.count, narrow, flipped=flipped, weights=weights)}

    def variants(self, instruction: Instruction, target: VectorTarget) -> list[Kernel]:
        """Other sizes of tiles and orders of loops."""
        tile = self.tile(instruction, target)
        return self.other_blockings(linear_geometry(instruction).with_step(tile.step), tile)

    def in_blocks_of(
        self, vectors: int, instruction: Instruction, target: VectorTarget
    ) -> TiledFullyConnected | None:
        """The kernel with the best blocking of so many vectors; None if there is none."""
        tile = self.tile(instruction, target)
        ranked = ranked_blockings(linear_geometry(instruction).with_step(tile.step), tile)
        found = next((blocking for blocking in ranked if blocking.vectors == vectors), None)
        if found is None:
            return None
        return replace(self, pixels=found.pixels, vectors=vectors, by_rows=found.by_rows)

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Estimated cycles of the product with this blocking."""
        tile = self.tile(instruction, target)
        return blocking_cost(linear_geometry(instruction).with_step(tile.step), tile, self.blocking)

    def emit(self, site: Site) -> None:
        """Emit the product."""
        self.product(site, linear_geometry(site.instruction)).emit(pointers(site))


def columns(instruction: Instruction) -> Array:
    """Transpose the filter K x N to N x K: one row of weights for each output."""
    return np.ascontiguousarray(constant_filter(instruction).T)


@candidates_for(FullyConnected)
def tiled_products(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the kernel with the blocking of least estimated cost; none for an empty or computed filter."""
    data = instruction.operand("filter").data
    if data is None or not data.size:
        return []
    clamp_first = must_clamp_first(instruction, columns(instruction))
    stored = stored_half(instruction) or exact_half(instruction.operand("filter"), target)
    kernels: list[Kernel] = []
    for name in multiplications(instruction, target):
        tile = tile_of(instruction, target, name, stored)
        found = choose_blocking(linear_geometry(instruction).with_step(tile.step), tile)
        sizes = found.pixels, found.vectors, found.by_rows
        kernels.append(TiledFullyConnected(*sizes, clamp_first, stored, name))
    return kernels
