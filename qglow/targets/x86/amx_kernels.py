"""Convolutions and matrix products of int8 on AMX."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from qglow.core.errors import InternalError
from qglow.core.types import Array
from qglow.instructions.ops.blocks import BlockGemm
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.ops.linear import FullyConnected
from qglow.instructions.program import Instruction, Padding
from qglow.kernels.convolution.conv import (
    border_scratch,
    constant_filter,
    emit_over_images,
    pointers,
    wanted_padding,
)
from qglow.kernels.emit.kernel import Kernel, Site, own_kernels
from qglow.kernels.emit.machine import MatrixCosts
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.products.linear import columns
from qglow.kernels.products.spread_rows import share_sets, spread_bytes, spread_pitch, spread_rows
from qglow.kernels.tiled.geometry import NO_AXIS, Geometry, apart, convolution_geometry, linear_geometry
from qglow.kernels.tiled.packing import must_clamp_first, product_constants
from qglow.kernels.tiles.output import OutputStage
from qglow.targets.x86.amx import ROW_BYTES, AmxTile
from qglow.targets.x86.amx_blocks import AmxBlockProduct, amx_block_products
from qglow.targets.x86.amx_product import AmxProduct
from qglow.targets.x86.amx_results import STORE_BYTES
from qglow.targets.x86.amx_walk import PAIR, plan_walk
from qglow.targets.x86.description import emulates_amx

LANES = 16
TILE = AmxTile(LANES)
COPIED_COLUMNS = 2048
"""Least columns of a product that copies rows which share sets of a cache.

With fewer the copy takes what it gains [measured].
"""
COPIED_ROWS = range(33, 513)
"""Rows of such a product: fewer pass over the weights once, more would need much memory."""


@dataclass(frozen=True)
class AmxKernel(Kernel):
    """Base of int8 products on AMX.

    clamp_first: whether sums are clamped before they are rounded, since they may be too large for int32.
    fetches: whether weights are prefetched, which was measured for matrices only.
    """

    uses_scales: ClassVar[bool] = False
    limits_live: ClassVar[bool] = True
    has_epilogue: ClassVar[bool] = True
    passes_floats: ClassVar[bool] = True
    accumulates_mean: ClassVar[bool] = True
    fetches: ClassVar[bool] = False

    clamp_first: bool = False

    def reads_parameters(self, instruction: Instruction, target: VectorTarget) -> bool:
        """Zero points are read, so that layers that differ in nothing else share code."""
        return True

    def product(self, site: Site, geometry: Geometry) -> AmxProduct:
        """The product of an instruction; reserves stack memory through which sums reach vector registers."""
        store = site.e.room("sums of tiles", STORE_BYTES, ROW_BYTES)
        output = OutputStage.of(site, LANES, self.clamp_first)
        sink = output.mean_sink
        images, geometry = (NO_AXIS, geometry) if sink is None else apart(geometry, sink.images)
        emulated = emulates_amx(site.target)
        return AmxProduct(site.e, geometry, TILE, output, PAIR, images, store, emulated, self.fetches)


def _stored(site: Site, geometry: Geometry) -> Geometry:
    """A geometry with the strides of what is stored, whose elements an epilogue may make smaller."""
    own = site["dest"].element_bytes
    return geometry.with_results(own, own if site.epilogue is None else site.epilogue.element_bytes)


def product_cycles(geometry: Geometry, costs: MatrixCosts) -> float:
    """Estimated cycles of multiplications, of finishing the sums, and of the overhead of units."""
    walk = plan_walk(geometry)
    vectors = -(-geometry.filters // LANES)
    units = walk.units * math.prod(axis.count for axis in walk.outer) * geometry.groups
    units *= geometry.axes[0].count if geometry.copied else 1
    tiles = units * walk.tiles * vectors
    work = tiles * geometry.runs.total_steps * costs.multiply_cycles
    ends = tiles * walk.rows * costs.output_cycles
    return work + ends + units * -(-vectors // PAIR) * costs.block_cycles


def _costs(target: VectorTarget) -> MatrixCosts:
    if target.model.matrix is None:
        raise InternalError(f"the machine model of {target.name} has no costs of a matrix unit")
    return target.model.matrix


def amx_convolution_geometry(instruction: Instruction) -> Geometry:
    """Geometry of a convolution whose steps are one row of a tile register, 64 bytes."""
    return convolution_geometry(instruction).with_step(ROW_BYTES)


def amx_linear_geometry(instruction: Instruction) -> Geometry:
    """Geometry of a matrix product whose steps are one row of a tile register, 64 bytes."""
    return linear_geometry(instruction).with_step(ROW_BYTES)


@dataclass(frozen=True)
class AmxConvolution(AmxKernel):
    """A convolution that reads windows in place; a source without enough padding is copied with a border."""

    name: ClassVar[str] = "amxconvolution"

    def paddings(self, instruction: Instruction) -> dict[str, Padding]:
        """Padding around `src` as far as windows reach."""
        return wanted_padding(instruction)

    def scratch_bytes(self, instruction: Instruction) -> int:
        """Bytes of one image with borders, where the source's padding does not suffice."""
        return border_scratch(instruction)

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """Packed filter, bias and multiplier."""
        geometry = amx_convolution_geometry(instruction)
        return product_constants(instruction, constant_filter(instruction), geometry, TILE, PAIR, target)

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cycles of the product."""
        return product_cycles(amx_convolution_geometry(instruction), _costs(target))

    def emit(self, site: Site) -> None:
        """Emit the product, image by image where the source is copied."""
        geometry = _stored(site, amx_convolution_geometry(site.instruction))
        product = self.product(site, geometry)
        emit_over_images(site, geometry, pointers(site), product.emit_all)


def _spreads_rows(instruction: Instruction) -> bool:
    """Whether rows are copied to places that do not compete for lines of the first-level cache."""
    rows, columns = instruction.operand("dest").type.shape
    return rows in COPIED_ROWS and columns >= COPIED_COLUMNS and share_sets(instruction)


@dataclass(frozen=True)
class AmxFullyConnected(AmxKernel):
    """A product with a constant matrix; the rows of `src` are its pixels.

    A tile loads 16 rows. Where they lie a multiple of 4 KiB apart, they displace one another from the cache:
    a copy spreads them.
    """

    name: ClassVar[str] = "amxfullyconnected"
    fetches: ClassVar[bool] = True

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """Packed filter, bias and multiplier."""
        geometry = amx_linear_geometry(instruction)
        return product_constants(instruction, columns(instruction), geometry, TILE, PAIR, target)

    def scratch_bytes(self, instruction: Instruction) -> int:
        """Bytes of copied rows, each followed by a line."""
        return spread_bytes(instruction) if _spreads_rows(instruction) else 0

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cycles of the product."""
        return product_cycles(amx_linear_geometry(instruction), _costs(target))

    def emit(self, site: Site) -> None:
        """Emit the product, of copied rows where that is faster."""
        geometry, given = _stored(site, amx_linear_geometry(site.instruction)), pointers(site)
        if _spreads_rows(site.instruction):
            (axis,) = geometry.axes
            spread = replace(axis, src_stride=spread_pitch(site.instruction))
            spread_rows(site)
            geometry, given = replace(geometry, axes=(spread,)), replace(given, src=site.scratch)
        self.product(site, geometry).emit_all(given)


def _applies(instruction: Instruction, target: VectorTarget) -> bool:
    filters = instruction.operand("filter")
    return (
        target.tile("tdpbusd") is not None
        and filters.data is not None
        and not instruction.operand("src").type.is_float
    )


def amx_convolutions(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """int8 convolutions where the target has tiles."""
    if not _applies(instruction, target):
        return []
    return [AmxConvolution(must_clamp_first(instruction, constant_filter(instruction)))]


def amx_products(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """int8 matrix products where the target has tiles."""
    if not _applies(instruction, target):
        return []
    return [AmxFullyConnected(must_clamp_first(instruction, columns(instruction)))]


AMX_KERNELS = own_kernels(
    (AmxConvolution, AmxFullyConnected, AmxBlockProduct),
    {Convolution: amx_convolutions, FullyConnected: amx_products, BlockGemm: amx_block_products},
)
