"""float32 depthwise convolutions: every result is one chain of multiply-adds over ascending taps (rule 9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.types import Array, ElementType
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.program import Instruction
from qglow.kernels.arithmetic.fused import add_product, step_instructions
from qglow.kernels.arithmetic.half import load_widened
from qglow.kernels.convolution.conv import constant_filter, emit_over_images, pointers, stored_half
from qglow.kernels.convolution.depthwise import DepthwiseKernel
from qglow.kernels.convolution.depthwise_geometry import (
    DepthwiseGeometry,
    depthwise_geometry,
    emit_tiles,
    is_depthwise,
)
from qglow.kernels.emit.builder import F32, Index, Value, vec
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.tiled.geometry import convolution_geometry
from qglow.kernels.tiles.output import OutputStage

MOST_PIXELS = 8
"""Limit of the pixels, and so of the accumulators, of a tile on targets with many registers."""


@kernel
@dataclass(frozen=True)
class DepthwiseFloatConvolution(DepthwiseKernel):
    """float32 depthwise convolution in tiles of one vector of channels and several pixels.

    `weights`: name of the 16-bit float type that weights are stored in; "" for float32.
    """

    name: ClassVar[str] = "depthwisefloat"

    weights: str = ""

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """Weights by chunk and tap, bias by chunk, one value for each lane."""
        geometry = depthwise_geometry(instruction, target.float_lanes)
        taps = constant_filter(instruction).reshape(geometry.channels, -1)
        bias = instruction.optional("bias")
        values = np.zeros(geometry.channels, np.float32) if bias is None else bias.data
        assert values is not None
        chunks = geometry.chunk_channels()
        return {
            "filter": np.concatenate([taps[channels].T.reshape(-1) for channels in chunks]),
            "bias": np.concatenate([values[channels] for channels in chunks]),
        }

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Estimated cycles: the multiply-adds, with one load each, and the output of every chunk."""
        geometry = depthwise_geometry(instruction, target.float_lanes)
        tiles = geometry.chunks
        for axis in geometry.axes:
            tiles *= axis.count
        costs = target.model.depthwise
        taps_a_cycle = costs.float_taps_a_cycle / step_instructions(target)
        return tiles * (len(geometry.taps) / taps_a_cycle + costs.float_end_cycles)

    def emit(self, site: Site) -> None:
        """Emit loops over rows, chunks and tiles."""
        geometry = depthwise_geometry(site.instruction, site.target.float_lanes)
        output = OutputStage.of(site, site.target.float_lanes, False)
        body = _Tile(site, geometry, output)
        emit_over_images(
            site,
            convolution_geometry(site.instruction),
            pointers(site),
            lambda p: emit_tiles(site.e, geometry, p.src, p.dest, (4, 4), self.pixels, body.emit),
        )


@dataclass(frozen=True)
class _Tile:
    """Emits the tiles of one convolution."""

    site: Site
    geometry: DepthwiseGeometry
    output: OutputStage

    def emit(self, src: Value, dest: Value, chunk: Index, pixels: int) -> None:
        """Emit `pixels` neighbouring results of one chunk, whose sums are stored only after all taps."""
        e, geometry, constants = self.site.e, self.geometry, self.site.constants
        lanes, size = geometry.width, 4 * geometry.width
        stored = self.site.instruction.operand("filter").type.element
        inner = geometry.axes[-1]
        kind = vec(F32, lanes)
        weights = e.offset(constants["filter"], e.scaled(chunk, len(geometry.taps) * stored.size * lanes))
        bias = e.load(e.offset(constants["bias"], e.scaled(chunk, size)), kind, align=size)
        sums = [bias] * pixels
        # Taps ascend in the outer loop, as rule 9 demands of the chain of a float result, and a weight is
        # loaded once for all pixels. A multiply-add waits for the one before it in its chain: between the two
        # come those of the other pixels of the tile, which are independent chains and hide the latency.
        for number, tap in enumerate(geometry.taps):
            weight = self._weight(e.offset(weights, number * stored.size * lanes), stored)
            for pixel in range(pixels):
                place = e.offset(src, tap + pixel * inner.src_stride)
                sums[pixel] = self._add(e.load_lanes(place, F32, lanes, geometry.stored), weight, sums[pixel])
        results = [e.offset(dest, pixel * inner.dest_stride) for pixel in range(pixels)]
        self.output.emit(e, [[total] for total in sums], [], results, geometry.stored)

    def _weight(self, pointer: Value, stored: ElementType) -> Value:
        """Load the weights of one tap, one a channel, as float32."""
        e, lanes = self.site.e, self.geometry.width
        if stored is ElementType.FLOAT:
            return e.load(pointer, vec(F32, lanes), align=4 * lanes)
        return load_widened(e, pointer, stored, lanes)

    def _add(self, value: Value, weight: Value, total: Value) -> Value:
        """Emit one multiply-add of the chain."""
        return add_product(self.site.e, value, weight, total)


@candidates_for(Convolution)
def depthwise_floats(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the float kernel where every channel has its own constant filter, none for others."""
    filters = instruction.operand("filter")
    if filters.data is None or not instruction.operand("src").type.is_float or not is_depthwise(instruction):
        return []
    return [DepthwiseFloatConvolution(min(MOST_PIXELS, target.registers * 3 // 8), stored_half(instruction))]
