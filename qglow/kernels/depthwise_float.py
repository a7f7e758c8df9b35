"""float32 depthwise convolutions: per channel one chain of multiply-adds over ascending taps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.types import Array, ElementType
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.program import Instruction
from qglow.kernels.builder import F32, Index, Value, vec
from qglow.kernels.conv import constant_filter, emit_over_images, pointers, stored_half
from qglow.kernels.conv_geometry import convolution_geometry
from qglow.kernels.depthwise import DepthwiseKernel
from qglow.kernels.depthwise_geometry import DepthwiseGeometry, depthwise_geometry, emit_tiles, is_depthwise
from qglow.kernels.half import load_widened
from qglow.kernels.isa import Isa
from qglow.kernels.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.tile_output import OutputStage

TILE_PIXELS = {32: 8, 16: 6}
"""Accumulators of a tile by the number of registers."""


@kernel
@dataclass(frozen=True)
class DepthwiseFloatConvolution(DepthwiseKernel):
    """One vector of channels, several pixels; `weights`: their type of 16 bits, if they are stored so."""

    name: ClassVar[str] = "depthwisefloat"

    weights: str = ""

    def constants(self, instruction: Instruction, isa: Isa) -> dict[str, Array]:
        """Filter by chunk and tap, bias by chunk."""
        geometry = depthwise_geometry(instruction, isa.float_lanes)
        taps = constant_filter(instruction).reshape(geometry.channels, -1)
        bias = instruction.optional("bias")
        values = np.zeros(geometry.channels, np.float32) if bias is None else bias.data
        assert values is not None
        chunks = geometry.chunk_channels()
        return {
            "filter": np.concatenate([taps[channels].T.reshape(-1) for channels in chunks]),
            "bias": np.concatenate([values[channels] for channels in chunks]),
        }

    def cost(self, instruction: Instruction, isa: Isa) -> float:
        """One load a multiply-add, two a cycle."""
        geometry = depthwise_geometry(instruction, isa.float_lanes)
        tiles = geometry.chunks
        for axis in geometry.axes:
            tiles *= axis.count
        return tiles * (len(geometry.taps) / (2 if isa.has_fma else 1) + 2.0)

    def emit(self, site: Site) -> None:
        """Rows, chunks, tiles."""
        geometry = depthwise_geometry(site.instruction, site.isa.float_lanes)
        output = OutputStage.of(site, site.isa.float_lanes, False)
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
        """`pixels` neighbouring results of one chunk."""
        e, geometry, constants = self.site.e, self.geometry, self.site.constants
        lanes, size = geometry.width, 4 * geometry.width
        stored = self.site.instruction.operand("filter").type.element
        inner = geometry.axes[-1]
        kind = vec(F32, lanes)
        weights = e.offset(constants["filter"], e.scaled(chunk, len(geometry.taps) * stored.size * lanes))
        bias = e.load(e.offset(constants["bias"], e.scaled(chunk, size)), kind, align=size)
        sums = [bias] * pixels
        for number, tap in enumerate(geometry.taps):
            weight = self._weight(e.offset(weights, number * stored.size * lanes), stored)
            for pixel in range(pixels):
                place = e.offset(src, tap + pixel * inner.src_stride)
                sums[pixel] = self._add(e.load_lanes(place, F32, lanes, geometry.stored), weight, sums[pixel])
        results = [e.offset(dest, pixel * inner.dest_stride) for pixel in range(pixels)]
        self.output.emit(e, [[total] for total in sums], [], results, geometry.stored)

    def _weight(self, pointer: Value, stored: ElementType) -> Value:
        """One weight a channel as float32."""
        e, lanes = self.site.e, self.geometry.width
        if stored is ElementType.FLOAT:
            return e.load(pointer, vec(F32, lanes), align=4 * lanes)
        return load_widened(e, pointer, stored, lanes)

    def _add(self, value: Value, weight: Value, total: Value) -> Value:
        """One link of the chain, rounded once where the target can."""
        e = self.site.e
        if self.site.isa.has_fma:
            return e.intrinsic("llvm.fma", value, weight, total)
        return e.b.fadd(total, e.b.fmul(value, weight))


@candidates_for(Convolution)
def depthwise_floats(instruction: Instruction, isa: Isa) -> list[Kernel]:
    """The float kernel where every channel has its own filter."""
    filters = instruction.operand("filter")
    if filters.data is None or not instruction.operand("src").type.is_float or not is_depthwise(instruction):
        return []
    return [DepthwiseFloatConvolution(TILE_PIXELS[isa.registers], stored_half(instruction))]
