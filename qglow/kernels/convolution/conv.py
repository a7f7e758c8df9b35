"""Convolutions as implicit matrix products on the vector unit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from qglow.core.types import Array, ElementType
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.program import NO_PADDING, Instruction, Padding
from qglow.kernels.convolution.border import emit_bordered_copy
from qglow.kernels.emit.kernel import MOST_VARIANTS, Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.tiled.blocking import Blocking, blocking_cost, choose_blocking, ranked_blockings
from qglow.kernels.tiled.geometry import (
    NO_AXIS,
    Geometry,
    apart,
    border_reach,
    convolution_geometry,
    copied_bytes,
)
from qglow.kernels.tiled.loops import Pointers
from qglow.kernels.tiled.packing import must_clamp_first, product_constants
from qglow.kernels.tiled.product import VectorProduct
from qglow.kernels.tiles.output import OutputStage
from qglow.kernels.tiles.tile import MicroTile, select_tile
from qglow.kernels.tiles.wide import int8_tile, wide_tiles

P = TypeVar("P", bound=VectorProduct)


@dataclass(frozen=True)
class TiledProduct(Kernel):
    """A register-tiled product: at most `pixels` x `vectors` accumulators.

    `by_rows`: loop over rows of pixels outside, over blocks of channels inside, else the other way round.
    `clamp_first`: rescaled sums may exceed int32, so they are clamped as floats before they are rounded.
    `weights`: name of the 16-bit float type that weights are stored in; "" for another type.
    `multiplication`: name of the target's multiplication, if it is one of wide tiles.
    """

    uses_scales: ClassVar[bool] = False
    has_epilogue: ClassVar[bool] = True
    accumulates_mean: ClassVar[bool] = True
    limits_live: ClassVar[bool] = True

    pixels: int = 1
    vectors: int = 1
    by_rows: bool = False
    clamp_first: bool = False
    weights: str = ""
    multiplication: str = ""

    @property
    def blocking(self) -> Blocking:
        """Size of the tile and order of the loops."""
        return Blocking(self.pixels, self.vectors, self.by_rows)

    def reads_parameters(self, instruction: Instruction, target: VectorTarget) -> bool:
        """Zero points are read, so that layers that differ in nothing else share code."""
        return True

    def other_blockings(self, geometry: Geometry, tile: MicroTile) -> list[Kernel]:
        """Settings of this kernel with other blockings, by estimated cost; at most `MOST_VARIANTS`."""
        found = [b for b in ranked_blockings(geometry, tile) if b != self.blocking]
        return [
            replace(self, pixels=b.pixels, vectors=b.vectors, by_rows=b.by_rows)
            for b in found[:MOST_VARIANTS]
        ]

    def tile(self, instruction: Instruction, target: VectorTarget) -> MicroTile:
        """Micro-kernel tile for an instruction."""
        return tile_of(instruction, target, self.multiplication, self.weights)

    def product(self, site: Site, geometry: Geometry) -> VectorProduct:
        """Emitter of the instruction's product with the micro-kernel tile that fits it."""
        tile = self.tile(site.instruction, site.target)
        return self.product_of(VectorProduct, tile, site, geometry.with_step(tile.step))

    def product_of(self, kind: type[P], tile: MicroTile, site: Site, geometry: Geometry) -> P:
        """Emitter of the instruction's product, of class `kind`, with this micro-kernel tile.

        Where results are averaged, images are computed one by one and `by_rows` is off: the sink has room for
        the sums of one block of channels, so a block runs over a whole image before the next block.
        """
        output = OutputStage.of(site, tile.lanes, self.clamp_first)
        sink = output.mean_sink
        images, geometry = (NO_AXIS, geometry) if sink is None else apart(geometry, sink.images)
        by_rows = self.by_rows and sink is None
        return kind(site.e, geometry, tile, output, self.vectors, images, self.pixels, by_rows)


def pointers(site: Site) -> Pointers:
    """Addresses of the first elements of `src` and `dest`, of packed constants and of the means."""
    constants = site.constants
    return Pointers(
        site["src"].pointer,
        site["dest"].pointer,
        constants["filter"],
        constants["bias"],
        constants.get("multiplier"),
        means=None if site.mean_sink is None else site.mean_sink.pointer,
        row_scales=site["row_scales"].pointer if "row_scales" in site.operands else None,
        addend=constants.get("addend"),
    )


@kernel
@dataclass(frozen=True)
class TiledConvolution(TiledProduct):
    """Convolution that reads windows where they lie, without an im2col matrix.

    A source with less padding than the windows reach goes through a bordered copy, image by image.
    """

    name: ClassVar[str] = "tiledconvolution"

    def paddings(self, instruction: Instruction) -> dict[str, Padding]:
        """Ask for padding around `src` as far as windows reach, which saves the bordered copy."""
        return wanted_padding(instruction)

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """Packed filter, bias and multiplier."""
        tile = self.tile(instruction, target)
        geometry = convolution_geometry(instruction).with_step(tile.step)
        filters = constant_filter(instruction)
        return product_constants(instruction, filters, geometry, tile, self.vectors, target)

    def scratch_bytes(self, instruction: Instruction) -> int:
        """Bytes of one image with its border, if the padding of `src` is too small; else 0."""
        return border_scratch(instruction)

    def variants(self, instruction: Instruction, target: VectorTarget) -> list[Kernel]:
        """Other tiles and orders of loops."""
        tile = self.tile(instruction, target)
        return self.other_blockings(convolution_geometry(instruction).with_step(tile.step), tile)

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Estimated cycles of the product with this blocking."""
        tile = self.tile(instruction, target)
        return blocking_cost(convolution_geometry(instruction).with_step(tile.step), tile, self.blocking)

    def emit(self, site: Site) -> None:
        """Emit the product, image by image where the source is copied."""
        geometry = convolution_geometry(site.instruction)
        product = self.product(site, geometry)
        emit_over_images(site, geometry, pointers(site), product.emit)


def emit_over_images(
    site: Site, geometry: Geometry, start: Pointers, emit: Callable[[Pointers], None]
) -> None:
    """Call `emit` once for all images where the source has the border, else in a loop over bordered copies.

    `emit` gets `start` with `src` moved to the top left corner of the first window.
    """
    e, src = site.e, site["src"]
    if not geometry.copied:
        top, left = site.operation.pads[:2]
        emit(start.moved(e, src=src.offset_bytes(0, -top, -left, 0)))
        return
    assert site.scratch is not None
    count = e.live_images(site["dest"].type)
    # All images share the memory of one copy, so one thread does all the work.
    with e.undivided(), e.loop(0, count, name="image") as image:
        emit_bordered_copy(e, image, src, geometry.reach, site.scratch, site.target.byte_lanes)
        dest = e.scaled(image, geometry.axes[0].dest_stride)
        means = e.scaled(image, site.mean_sink.image_bytes) if site.mean_sink else 0
        emit(replace(start.moved(e, dest=dest, means=means), src=site.scratch))


def wanted_padding(instruction: Instruction) -> dict[str, Padding]:
    """Padding of `src` that the windows of a convolution read, by operand name; empty for none."""
    reach = border_reach(instruction)
    return {} if reach == NO_PADDING else {"src": reach}


def border_scratch(instruction: Instruction) -> int:
    """Bytes of a bordered copy of one image, and 64 more that vectors may read behind it; 0 for no copy."""
    if not convolution_geometry(instruction).copied:
        return 0
    return copied_bytes(instruction) + 64


def tile_of(
    instruction: Instruction, target: VectorTarget, multiplication: str = "", weights: str = ""
) -> MicroTile:
    """Micro-kernel tile for the type of an instruction's operand `src`.

    `multiplication`: name of a multiplication of wide tiles; "" for the usual tile. `weights`: as those of
    `TiledProduct`.
    """
    if instruction.operand("src").type.is_float:
        return select_tile(target, True, ElementType(weights) if weights else ElementType.FLOAT)
    return int8_tile(target, multiplication, once=reads_once(instruction))


def reads_once(instruction: Instruction) -> bool:
    """Whether a product reads its weights once in a call: one row by a matrix, or one pixel of an image."""
    shape = instruction.operand("dest").type.shape
    return math.prod(shape) == shape[-1]


def multiplications(instruction: Instruction, target: VectorTarget) -> list[str]:
    """Names for `tile_of` that are worth comparing: wide tiles for int8, then the usual one.

    Where floats take other features of the processor, float results do without wide ones.
    """
    src, dest = (instruction.operand(name).type for name in ("src", "dest"))
    is_plain = src.is_float or (target.float_features is not None and dest.is_float)
    return [*([] if is_plain else wide_tiles(target)), ""]


def stored_half(instruction: Instruction) -> str:
    """Name of the 16-bit float type that the filter is stored in; "" for another type."""
    kind = instruction.operand("filter").type
    return kind.element.value if kind.is_half else ""


def constant_filter(instruction: Instruction) -> Array:
    """Values of the constant filter."""
    data = instruction.operand("filter").data
    assert data is not None
    return data


@candidates_for(Convolution)
def tiled_convolutions(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the kernel with the blocking of least estimated cost; none for a filter that is computed."""
    if instruction.operand("filter").data is None:
        return []
    clamp_first = must_clamp_first(instruction, constant_filter(instruction))
    stored = stored_half(instruction)
    kernels: list[Kernel] = []
    for name in multiplications(instruction, target):
        tile = tile_of(instruction, target, name, stored)
        found = choose_blocking(convolution_geometry(instruction).with_step(tile.step), tile)
        sizes = found.pixels, found.vectors, found.by_rows
        kernels.append(TiledConvolution(*sizes, clamp_first, stored, name))
    return kernels
