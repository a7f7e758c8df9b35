"""int8 depthwise convolutions: vectors run over channels, a 32-bit lane holds several taps of one channel.

Every channel has a filter of its own, so there is no sum over channels: a multiplication that adds up
neighbouring products in a lane gets taps of the window as neighbours instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qglow.core.types import Array
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.program import Instruction, Padding
from qglow.kernels.convolution.conv import (
    border_scratch,
    constant_filter,
    emit_over_images,
    pointers,
    wanted_padding,
)
from qglow.kernels.convolution.depthwise_geometry import (
    DepthwiseGeometry,
    depthwise_geometry,
    emit_averaged_tiles,
    emit_tiles,
    is_depthwise,
)
from qglow.kernels.convolution.depthwise_taps import TapStep, select_step
from qglow.kernels.emit.builder import F32, I8, Index, Value, vec
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.tiled.geometry import convolution_geometry
from qglow.kernels.tiled.loops import Pointers
from qglow.kernels.tiled.packing import fold_zero_point, must_clamp_first, source_zero_point
from qglow.kernels.tiles.output import OutputStage

TILE_PIXELS = (1, 2, 3, 4, 5, 6, 7, 8)
"""Numbers of pixels in a tile that are worth measuring."""


@dataclass(frozen=True)
class DepthwiseKernel(Kernel):
    """Depthwise convolution in tiles of up to `pixels` neighbouring pixels of one chunk of channels.

    A source with less padding than the windows reach goes through a bordered copy, image by image.
    """

    uses_scales: ClassVar[bool] = False
    limits_live: ClassVar[bool] = True

    pixels: int = 1

    def paddings(self, instruction: Instruction) -> dict[str, Padding]:
        """Ask for padding around `src` as far as windows reach, which saves the bordered copy."""
        return wanted_padding(instruction)

    def scratch_bytes(self, instruction: Instruction) -> int:
        """Bytes of one image with its border, if the padding of `src` is too small; else 0."""
        return border_scratch(instruction)

    def reads_parameters(self, instruction: Instruction, target: VectorTarget) -> bool:
        """Zero points are read, so that layers that differ in nothing else share code."""
        return True

    def variants(self, instruction: Instruction, target: VectorTarget) -> list[Kernel]:
        """Other numbers of pixels in a tile, none beyond a row of results."""
        row = instruction.operand("dest").type.shape[2]
        return [replace(self, pixels=n) for n in TILE_PIXELS if n != self.pixels and n <= row]


@kernel
@dataclass(frozen=True)
class DepthwiseConvolution(DepthwiseKernel):
    """int8 depthwise convolution: four vectors of int32 sums for each pixel and byte vector of channels.

    Windows of neighbouring pixels overlap and share the vectors of interleaved taps.
    """

    name: ClassVar[str] = "depthwiseconvolution"
    has_epilogue: ClassVar[bool] = True
    accumulates_mean: ClassVar[bool] = True

    clamp_first: bool = False

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """Weights by chunk and group of taps; bias and multiplier by chunk, in the lane order of the sums."""
        step, geometry = plan(instruction, target)
        taps = constant_filter(instruction).reshape(geometry.channels, -1)
        bias, multiplier = instruction.operand("bias").data, instruction.optional("multiplier")
        assert bias is not None
        folded = fold_zero_point(taps, bias, source_zero_point(instruction) + target.activation_bias)
        weights, sums, factors = [], [], []
        for channels in geometry.chunk_channels():
            for group in tap_groups(geometry.kernel, step.taps):
                chosen = taps[channels][:, group].T
                weights.append(step.pack(np.pad(chosen, ((0, step.taps - len(group)), (0, 0)))))
            order, results = (np.array(channels)[o].reshape(-1) for o in (step.order, step.result_order))
            sums.append(folded[order])
            if multiplier is not None and multiplier.data is not None:
                factors.append(multiplier.data.astype(np.float32)[results])
        constants = {"filter": np.concatenate(weights), "bias": np.concatenate(sums)}
        return constants | ({"multiplier": np.concatenate(factors)} if factors else {})

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Estimated cycles: interleaving and products of all groups of taps, output of all chunks."""
        step, geometry = plan(instruction, target)
        groups = len(tap_groups(geometry.kernel, step.taps))
        tiles = geometry.chunks
        for axis in geometry.axes:
            tiles *= axis.count
        costs = target.model.depthwise
        operations = costs.group_operations * groups + costs.end_operations
        return tiles * operations / costs.operations_a_cycle

    def emit(self, site: Site) -> None:
        """Emit loops over rows, chunks and tiles; where results are averaged, chunks are outermost."""
        step, geometry = plan(site.instruction, site.target)
        output = OutputStage.of(site, step.lanes, self.clamp_first)
        body, sink = _Tile(site, step, geometry, output), output.mean_sink

        def emit(p: Pointers) -> None:
            if sink is not None and p.means is not None:
                places = p.src, p.dest, p.means
                emit_averaged_tiles(site.e, geometry, *places, self.pixels, body.emit, sink)
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
        """Emit `pixels` neighbouring results of one chunk, whose sums are stored only after all taps."""
        e, step, width = self.site.e, self.step, self.step.width
        groups = tap_groups(self.geometry.kernel, step.taps)
        constants = self.site.constants
        weights = e.offset(constants["filter"], e.scaled(chunk, len(groups) * step.weight_bytes))
        bias = self._channels(constants["bias"], chunk, step.accumulator)
        sums = [list(bias) for _ in range(pixels)]
        # Windows of neighbouring pixels overlap: taps are interleaved once for all pixels that multiply them.
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
            multipliers = self._channels(constants["multiplier"], chunk, vec(F32, step.lanes))
        for pixel in range(pixels):
            result = e.offset(dest, pixel * self.geometry.axes[-1].dest_stride)
            ordered = step.results(e, sums[pixel])
            if e.target.interleaves:
                self.output.emit_interleaved(e, ordered, multipliers, result, self.geometry.stored)
            else:
                self.output.emit(e, [ordered], multipliers, [result], self.geometry.stored)

    def _channels(self, base: Value, chunk: Index, kind: object) -> list[Value]:
        """Load the vectors of bias or multipliers of a chunk, one 32-bit value a channel."""
        e, size = self.site.e, 4 * self.step.lanes
        start = e.offset(base, e.scaled(chunk, 4 * self.step.width))
        return [e.load(e.offset(start, v * size), kind, align=size) for v in range(self.step.vectors)]

    def _uses(
        self, pixels: int, groups: Sequence[Sequence[int]]
    ) -> list[tuple[tuple[int, ...], list[tuple[int, int]]]]:
        """Groups of taps to interleave, each with the (pixel, group number) pairs that multiply it.

        A group is the byte offsets of its taps from the first window; groups are in ascending order.
        """
        stride = self.geometry.axes[-1].src_stride
        uses: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for pixel in range(pixels):
            for number, group in enumerate(groups):
                offsets = [self.geometry.taps[tap] + pixel * stride for tap in group]
                # Missing taps of a partial group have weights of zero: any readable byte will do for them.
                offsets += offsets[:1] * (self.step.taps - len(group))
                uses.setdefault(tuple(offsets), []).append((pixel, number))
        return sorted(uses.items())


def tap_groups(kernel: tuple[int, int], size: int) -> list[list[int]]:
    """Groups of at most `size` taps that one step multiplies, as numbers in ascending (kh, kw).

    A group lies in one column of the window, because neighbouring windows of a row share whole columns. It
    lies in the row of a window that has only one row.
    """
    height, width = kernel
    lines = [[y * width + x for y in range(height)] for x in range(width)]
    if height == 1:
        lines = [list(range(width))]
    return [line[i : i + size] for line in lines for i in range(0, len(line), size)]


def plan(instruction: Instruction, target: VectorTarget) -> tuple[TapStep, DepthwiseGeometry]:
    """Choose step and geometry: a full register of neighbouring pixels where few channels allow that.

    Otherwise the width of a chunk is the least that holds all channels, or a full register.
    """
    channels = instruction.operand("src").type.shape[3]
    full = select_step(target, target.byte_lanes)
    joined = depthwise_geometry(instruction, full.width)
    if joined.joined > 1:
        return full, joined
    step = select_step(target, channels)
    return step, depthwise_geometry(instruction, step.width)


@candidates_for(Convolution)
def depthwise_convolutions(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the int8 kernel where every channel has its own constant filter; none for other convolutions."""
    filters = instruction.operand("filter")
    if filters.data is None or instruction.operand("src").type.is_float or not is_depthwise(instruction):
        return []
    clamp_first = must_clamp_first(instruction, filters.data)
    step, _ = plan(instruction, target)
    # Half of the registers hold sums; the other half is left to taps and weights, and without interleaving to
    # products too.
    room = target.registers // (2 if target.interleaves else 4)
    return [DepthwiseConvolution(max(1, room // step.vectors), clamp_first)]
