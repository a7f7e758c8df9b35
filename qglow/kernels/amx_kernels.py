"""Convolutions and matrix products of int8 on AMX."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from llvmlite import ir

from qglow.core.types import Array
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.ops.linear import FullyConnected
from qglow.instructions.program import Instruction, Padding
from qglow.kernels.amx import ROW_BYTES, TILE_BYTES, AmxTile
from qglow.kernels.amx_product import PAIR, AmxProduct, plan_walk
from qglow.kernels.builder import I8, PTR
from qglow.kernels.conv import border_scratch, constant_filter, emit_over_images, pointers, wanted_padding
from qglow.kernels.conv_geometry import NO_AXIS, Geometry, apart, convolution_geometry, linear_geometry
from qglow.kernels.conv_packing import must_clamp_first, product_constants
from qglow.kernels.isa import Isa
from qglow.kernels.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.linear import columns
from qglow.kernels.tile_output import OutputStage

LANES = 16
TILE = AmxTile(LANES)
MULTIPLY_CYCLES = 16.0
OUTPUT_CYCLES = 3.5
"""Cycles to finish one vector of one pixel, its way through memory included."""
UNIT_CYCLES = 60.0


@dataclass(frozen=True)
class AmxKernel(Kernel):
    """`clamp_first`: sums may be too large to be rounded to int32 before they are clamped."""

    uses_scales: ClassVar[bool] = False
    has_epilogue: ClassVar[bool] = True
    has_pool: ClassVar[bool] = True

    clamp_first: bool = False

    def product(self, site: Site, geometry: Geometry) -> AmxProduct:
        """The product of an instruction; reserves the memory that sums go through."""
        store = site.e.b.alloca(ir.ArrayType(I8, PAIR * PAIR * TILE_BYTES))
        store.align = ROW_BYTES
        # llvmlite makes a typed pointer of it, which fits no opaque one.
        store.type = PTR
        output = OutputStage.of(site, LANES, self.clamp_first)
        images, geometry = (NO_AXIS, geometry) if output.pool is None else apart(geometry, output.pool.images)
        return AmxProduct(site.e, geometry, TILE, output, PAIR, images, store)


def product_cycles(geometry: Geometry) -> float:
    """Multiplications, the ends of units, and their overhead."""
    walk = plan_walk(geometry)
    vectors = -(-geometry.filters // LANES)
    units = walk.units * math.prod(axis.count for axis in walk.outer) * geometry.groups
    units *= geometry.axes[0].count if geometry.copied else 1
    tiles = units * walk.tiles * vectors
    work = tiles * geometry.runs.total_steps * MULTIPLY_CYCLES
    return work + tiles * walk.rows * OUTPUT_CYCLES + units * -(-vectors // PAIR) * UNIT_CYCLES


def amx_convolution_geometry(instruction: Instruction) -> Geometry:
    """A convolution in steps of a row of a register."""
    return convolution_geometry(instruction).with_step(ROW_BYTES)


def amx_linear_geometry(instruction: Instruction) -> Geometry:
    """A matrix product in steps of a row of a register."""
    return linear_geometry(instruction).with_step(ROW_BYTES)


@kernel
@dataclass(frozen=True)
class AmxConvolution(AmxKernel):
    """Windows are read where they lie; a source without padding goes through a bordered copy."""

    name: ClassVar[str] = "amxconvolution"

    def paddings(self, instruction: Instruction) -> dict[str, Padding]:
        """As far around `src` as windows reach."""
        return wanted_padding(instruction)

    def scratch_bytes(self, instruction: Instruction) -> int:
        """One image with borders, where the source's padding does not do."""
        return border_scratch(instruction)

    def constants(self, instruction: Instruction, isa: Isa) -> dict[str, Array]:
        """Packed filter, bias and multiplier."""
        geometry = amx_convolution_geometry(instruction)
        return product_constants(instruction, constant_filter(instruction), geometry, TILE, PAIR, isa)

    def cost(self, instruction: Instruction, isa: Isa) -> float:
        """Cycles of the product."""
        return product_cycles(amx_convolution_geometry(instruction))

    def emit(self, site: Site) -> None:
        """The product, image by image where the source is copied."""
        geometry = amx_convolution_geometry(site.instruction)
        product = self.product(site, geometry)
        emit_over_images(site, geometry, pointers(site), product.emit_all)


@kernel
@dataclass(frozen=True)
class AmxFullyConnected(AmxKernel):
    """Rows of `src` are pixels."""

    name: ClassVar[str] = "amxfullyconnected"

    def constants(self, instruction: Instruction, isa: Isa) -> dict[str, Array]:
        """Packed filter, bias and multiplier."""
        geometry = amx_linear_geometry(instruction)
        return product_constants(instruction, columns(instruction), geometry, TILE, PAIR, isa)

    def cost(self, instruction: Instruction, isa: Isa) -> float:
        """Cycles of the product."""
        return product_cycles(amx_linear_geometry(instruction))

    def emit(self, site: Site) -> None:
        """The product."""
        self.product(site, amx_linear_geometry(site.instruction)).emit_all(pointers(site))


def _applies(instruction: Instruction, isa: Isa) -> bool:
    filters = instruction.operand("filter")
    return (
        isa.tile("tdpbusd") is not None
        and filters.data is not None
        and not instruction.operand("src").type.is_float
    )


@candidates_for(Convolution)
def amx_convolutions(instruction: Instruction, isa: Isa) -> list[Kernel]:
    """int8 convolutions where the target has tiles."""
    if not _applies(instruction, isa):
        return []
    return [AmxConvolution(must_clamp_first(instruction, constant_filter(instruction)))]


@candidates_for(FullyConnected)
def amx_products(instruction: Instruction, isa: Isa) -> list[Kernel]:
    """int8 matrix products where the target has tiles."""
    if not _applies(instruction, isa):
        return []
    return [AmxFullyConnected(must_clamp_first(instruction, columns(instruction)))]
