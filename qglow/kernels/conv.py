"""Convolutions as implicit matrix products on the vector unit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from qglow.core.types import Array, ElementType
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.program import NO_PADDING, Instruction, Padding
from qglow.kernels.conv_blocking import Blocking, blocking_cost, choose_blocking, ranked_blockings
from qglow.kernels.conv_border import emit_bordered_copy
from qglow.kernels.conv_geometry import (
    NO_AXIS,
    Geometry,
    apart,
    border_reach,
    convolution_geometry,
    copied_bytes,
)
from qglow.kernels.conv_packing import must_clamp_first, product_constants
from qglow.kernels.isa import Isa
from qglow.kernels.kernel import MOST_VARIANTS, Kernel, Site, candidates_for, kernel
from qglow.kernels.tile import MicroTile, select_tile
from qglow.kernels.tile_loops import Pointers
from qglow.kernels.tile_output import OutputStage
from qglow.kernels.tile_product import VectorProduct

COPIED_BYTES_A_CYCLE = 24.0

P = TypeVar("P", bound=VectorProduct)


@dataclass(frozen=True)
class TiledProduct(Kernel):
    """A register-tiled product: at most `pixels` x `vectors` accumulators.

    `by_rows`: all weights pass over a row of pixels before the next row is begun.
    `clamp_first`: sums may be too large to be rounded to int32 before they are clamped.
    `weights`: the type of 16 bits that weights are stored in, if they are.
    """

    uses_scales: ClassVar[bool] = False
    has_epilogue: ClassVar[bool] = True
    has_pool: ClassVar[bool] = True

    pixels: int = 1
    vectors: int = 1
    by_rows: bool = False
    clamp_first: bool = False
    weights: str = ""

    @property
    def blocking(self) -> Blocking:
        """The tile and the order of loops."""
        return Blocking(self.pixels, self.vectors, self.by_rows)

    def other_blockings(self, geometry: Geometry, tile: MicroTile) -> list[Kernel]:
        """This kernel on the tiles that are estimated to be the next best."""
        found = [b for b in ranked_blockings(geometry, tile) if b != self.blocking]
        return [
            replace(self, pixels=b.pixels, vectors=b.vectors, by_rows=b.by_rows)
            for b in found[:MOST_VARIANTS]
        ]

    def product(self, site: Site, geometry: Geometry) -> VectorProduct:
        """The product of an instruction on this kernel's tile."""
        return self.product_of(VectorProduct, tile_of(site.instruction, site.isa), site, geometry)

    def product_of(self, kind: type[P], tile: MicroTile, site: Site, geometry: Geometry) -> P:
        """The product of a kind on a tile; image by image for a pool, and then never by rows."""
        output = OutputStage.of(site, tile.lanes, self.clamp_first)
        pool = output.pool
        images, geometry = (NO_AXIS, geometry) if pool is None else apart(geometry, pool.images)
        by_rows = self.by_rows and pool is None
        return kind(site.e, geometry, tile, output, self.vectors, images, self.pixels, by_rows)


def pointers(site: Site) -> Pointers:
    """Where the operands of an accumulating instruction start."""
    constants = site.constants
    return Pointers(
        site["src"].pointer,
        site["dest"].pointer,
        constants["filter"],
        constants["bias"],
        constants.get("multiplier"),
        means=None if site.pool is None else site.pool.pointer,
    )


@kernel
@dataclass(frozen=True)
class TiledConvolution(TiledProduct):
    """Windows are read where they lie; a source without padding goes through a bordered copy."""

    name: ClassVar[str] = "tiledconvolution"

    def paddings(self, instruction: Instruction) -> dict[str, Padding]:
        """As far around `src` as windows reach."""
        return wanted_padding(instruction)

    def constants(self, instruction: Instruction, isa: Isa) -> dict[str, Array]:
        """Packed filter, bias and multiplier."""
        geometry = convolution_geometry(instruction)
        tile = tile_of(instruction, isa)
        filters = constant_filter(instruction)
        return product_constants(instruction, filters, geometry, tile, self.vectors, isa)

    def scratch_bytes(self, instruction: Instruction) -> int:
        """One image with borders, where the source's padding does not do."""
        return border_scratch(instruction)

    def variants(self, instruction: Instruction, isa: Isa) -> list[Kernel]:
        """Other tiles and orders of loops."""
        tile = tile_of(instruction, isa)
        return self.other_blockings(convolution_geometry(instruction), tile)

    def cost(self, instruction: Instruction, isa: Isa) -> float:
        """Cycles of the product."""
        tile = tile_of(instruction, isa)
        return blocking_cost(convolution_geometry(instruction), tile, self.blocking)

    def emit(self, site: Site) -> None:
        """The product, image by image where the source is copied."""
        geometry = convolution_geometry(site.instruction)
        product = self.product(site, geometry)
        emit_over_images(site, geometry, pointers(site), product.emit)


def emit_over_images(
    site: Site, geometry: Geometry, start: Pointers, emit: Callable[[Pointers], None]
) -> None:
    """All images at once where the source has the border; else each from its bordered copy.

    `emit` gets the address of the first window's corner.
    """
    e, src = site.e, site["src"]
    if not geometry.copied:
        top, left = site.operation.pads[:2]
        emit(start.moved(e, src=src.offset_bytes(0, -top, -left, 0)))
        return
    assert site.scratch is not None
    # There is one copy, so one thread works on it.
    with e.undivided(), e.loop(0, src.shape[0], name="image") as image:
        emit_bordered_copy(e, image, src, geometry.reach, site.scratch, site.isa.byte_lanes)
        dest = e.scaled(image, geometry.axes[0].dest_stride)
        means = e.scaled(image, site.pool.image_bytes) if site.pool else 0
        emit(replace(start.moved(e, dest=dest, means=means), src=site.scratch))


def wanted_padding(instruction: Instruction) -> dict[str, Padding]:
    """The border that a convolution's windows read, if any."""
    reach = border_reach(instruction)
    return {} if reach == NO_PADDING else {"src": reach}


def border_scratch(instruction: Instruction) -> int:
    """Bytes of a bordered copy of one image (and what may be read behind it), 0 for none."""
    if not convolution_geometry(instruction).copied:
        return 0
    return copied_bytes(instruction) + 64


def tile_of(instruction: Instruction, isa: Isa) -> MicroTile:
    """The tile for an instruction with operands `src` and `filter`."""
    filters = instruction.operand("filter").type
    stored = filters.element if filters.is_half else ElementType.FLOAT
    return select_tile(isa, instruction.operand("src").type.is_float, stored)


def stored_half(instruction: Instruction) -> str:
    """The type of 16 bits that a filter is stored in; "" for another one."""
    kind = instruction.operand("filter").type
    return kind.element.value if kind.is_half else ""


def constant_filter(instruction: Instruction) -> Array:
    """The filter's values."""
    data = instruction.operand("filter").data
    assert data is not None
    return data


@candidates_for(Convolution)
def tiled_convolutions(instruction: Instruction, isa: Isa) -> list[Kernel]:
    """The tile with the least estimated cost."""
    if instruction.operand("filter").data is None:
        return []
    geometry = convolution_geometry(instruction)
    blocking = choose_blocking(geometry, tile_of(instruction, isa))
    clamp_first = must_clamp_first(instruction, constant_filter(instruction))
    stored = stored_half(instruction)
    return [TiledConvolution(blocking.pixels, blocking.vectors, blocking.by_rows, clamp_first, stored)]
