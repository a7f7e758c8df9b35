"""int8 depthwise convolutions: vectors over channels, taps in lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qglow.core.types import Array
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.program import Instruction, Padding
from qglow.kernels.builder import F32, I8, Index, Value, vec
from qglow.kernels.conv import border_scratch, constant_filter, emit_over_images, pointers, wanted_padding
from qglow.kernels.conv_geometry import convolution_geometry
from qglow.kernels.conv_packing import fold_zero_point, must_clamp_first, source_zero_point
from qglow.kernels.depthwise_geometry import (
    DepthwiseGeometry,
    depthwise_geometry,
    emit_pooled_tiles,
    emit_tiles,
    is_depthwise,
)
from qglow.kernels.depthwise_taps import VECTORS, TapStep, lane_order, select_step
from qglow.kernels.isa import Isa
from qglow.kernels.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.tile_loops import Pointers
from qglow.kernels.tile_output import OutputStage

TILE_SUMS = {32: 16, 16: 8}
"""Accumulators of a tile by the number of registers."""
TILE_PIXELS = (1, 2, 3, 4, 5, 6, 7, 8)
"""Pixels of a tile that are worth measuring."""


@dataclass(frozen=True)
class DepthwiseKernel(Kernel):
    """A tile of up to `pixels` pixels at a time; a source without padding goes through a copy."""

    uses_scales: ClassVar[bool] = False

    pixels: int = 1

    def paddings(self, instruction: Instruction) -> dict[str, Padding]:
        """As far around `src` as windows reach."""
        return wanted_padding(instruction)

    def scratch_bytes(self, instruction: Instruction) -> int:
        """One image with borders, where the source's padding does not do."""
        return border_scratch(instruction)

    def variants(self, instruction: Instruction, isa: Isa) -> list[Kernel]:
        """Other numbers of pixels."""
        row = instruction.operand("dest").type.shape[2]
        return [replace(self, pixels=n) for n in TILE_PIXELS if n != self.pixels and n <= row]


@kernel
@dataclass(frozen=True)
class DepthwiseConvolution(DepthwiseKernel):
    """Four accumulators a vector of bytes; interleaved taps are shared by overlapping windows."""

    name: ClassVar[str] = "depthwiseconvolution"
    has_epilogue: ClassVar[bool] = True
    has_pool: ClassVar[bool] = True

    clamp_first: bool = False

    def constants(self, instruction: Instruction, isa: Isa) -> dict[str, Array]:
        """Filter by chunk and group of taps, bias and multiplier in the order of lanes."""
        step, geometry = plan(instruction, isa)
        taps = constant_filter(instruction).reshape(geometry.channels, -1)
        bias, multiplier = instruction.operand("bias").data, instruction.optional("multiplier")
        assert bias is not None
        folded = fold_zero_point(taps, bias, source_zero_point(instruction) + isa.activation_bias)
        weights, sums, factors = [], [], []
        for channels in geometry.chunk_channels():
            for group in tap_groups(geometry.kernel, step.taps):
                chosen = taps[channels][:, group].T
                weights.append(step.pack(np.pad(chosen, ((0, step.taps - len(group)), (0, 0)))))
            order = np.array(channels)[lane_order(step.width)].reshape(-1)
            sums.append(folded[order])
            if multiplier is not None and multiplier.data is not None:
                factors.append(multiplier.data.astype(np.float32)[order])
        constants = {"filter": np.concatenate(weights), "bias": np.concatenate(sums)}
        return constants | ({"multiplier": np.concatenate(factors)} if factors else {})

    def cost(self, instruction: Instruction, isa: Isa) -> float:
        """Interleaves, products and the end of every chunk, three operations a cycle."""
        step, geometry = plan(instruction, isa)
        groups = len(tap_groups(geometry.kernel, step.taps))
        tiles = geometry.chunks
        for axis in geometry.axes:
            tiles *= axis.count
        return tiles * (12.0 * groups + 24.0) / 3

    def emit(self, site: Site) -> None:
        """Rows, chunks, tiles."""
        step, geometry = plan(site.instruction, site.isa)
        output = OutputStage.of(site, step.width // VECTORS, self.clamp_first)
        body, pool = _Tile(site, step, geometry, output), output.pool

        def emit(p: Pointers) -> None:
            if pool is not None and p.means is not None:
                emit_pooled_tiles(site.e, geometry, p.src, p.dest, p.means, self.pixels, body.emit, pool)
                return
            sizes = (1, output.element_bytes)
            emit_tiles(site.e, geometry, p.src, p.dest, sizes, self.pixels, body.emit)

        emit_over_images(site, convolution_geometry(site.instruction), pointers(site), emit)


@dataclass(frozen=True)
class _Tile:
    """Emits the tiles of one convolution."""

    site: Site
    step: TapStep
    geometry: DepthwiseGeometry
    output: OutputStage

    def emit(self, src: Value, dest: Value, chunk: Index, pixels: int) -> None:
        """`pixels` neighbouring results of one chunk."""
        e, step, width = self.site.e, self.step, self.step.width
        groups = tap_groups(self.geometry.kernel, step.taps)
        constants = self.site.constants
        weights = e.offset(constants["filter"], e.scaled(chunk, len(groups) * step.weight_bytes))
        bias = self._channels(constants["bias"], chunk, step.accumulator)
        sums = [list(bias) for _ in range(pixels)]
        for offsets, uses in self._uses(pixels, groups):
            rows = [e.load(e.offset(src, offset), vec(I8, width)) for offset in offsets]
            taps = step.interleave(e, rows)
            for pixel, group in uses:
                loaded = step.load_weights(e, e.offset(weights, group * step.weight_bytes))
                sums[pixel] = [
                    step.accumulate(e, *operands) for operands in zip(sums[pixel], taps, loaded, strict=True)
                ]
        multipliers = []
        if "multiplier" in constants:
            multipliers = self._channels(constants["multiplier"], chunk, vec(F32, width // VECTORS))
        for pixel in range(pixels):
            result = e.offset(dest, pixel * self.geometry.axes[-1].dest_stride)
            self.output.emit_interleaved(e, sums[pixel], multipliers, result, self.geometry.stored)

    def _channels(self, base: Value, chunk: Index, kind: object) -> list[Value]:
        """Four vectors of one value a channel."""
        e, width = self.site.e, self.step.width
        start = e.offset(base, e.scaled(chunk, 4 * width))
        return [e.load(e.offset(start, v * width), kind, align=width) for v in range(VECTORS)]

    def _uses(
        self, pixels: int, groups: Sequence[Sequence[int]]
    ) -> list[tuple[tuple[int, ...], list[tuple[int, int]]]]:
        """What to interleave, left to right, with the (pixel, group) pairs that use it."""
        stride = self.geometry.axes[-1].src_stride
        uses: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for pixel in range(pixels):
            for number, group in enumerate(groups):
                offsets = [self.geometry.taps[tap] + pixel * stride for tap in group]
                offsets += offsets[:1] * (self.step.taps - len(group))
                uses.setdefault(tuple(offsets), []).append((pixel, number))
        return sorted(uses.items())


def tap_groups(kernel: tuple[int, int], size: int) -> list[list[int]]:
    """Numbers of the taps that share a step: those of a column, or of a row if there is only one.

    Columns are what neighbouring windows share.
    """
    height, width = kernel
    lines = [[y * width + x for y in range(height)] for x in range(width)]
    if height == 1:
        lines = [list(range(width))]
    return [line[i : i + size] for line in lines for i in range(0, len(line), size)]


def plan(instruction: Instruction, isa: Isa) -> tuple[TapStep, DepthwiseGeometry]:
    """Step and geometry: neighbouring pixels share a full register if they can."""
    channels = instruction.operand("src").type.shape[3]
    full = select_step(isa, isa.byte_lanes)
    joined = depthwise_geometry(instruction, full.width)
    if joined.joined > 1:
        return full, joined
    step = select_step(isa, channels)
    return step, depthwise_geometry(instruction, step.width)


@candidates_for(Convolution)
def depthwise_convolutions(instruction: Instruction, isa: Isa) -> list[Kernel]:
    """The int8 kernel where every channel has its own filter."""
    filters = instruction.operand("filter")
    if filters.data is None or instruction.operand("src").type.is_float or not is_depthwise(instruction):
        return []
    clamp_first = must_clamp_first(instruction, filters.data)
    return [DepthwiseConvolution(TILE_SUMS[isa.registers] // VECTORS, clamp_first)]
