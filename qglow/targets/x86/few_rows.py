"""Products of few rows by many int8 weights on AVX2, which memory bounds, so that weights take a byte there.

Lists of steps (listed) have masks beside the weights, and the usual tile of 16-bit products keeps words. Here
bytes are widened in registers, for which few rows leave time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.instructions.program import Instruction
from qglow.kernels.emit.builder import Value
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.kernel import Kernel
from qglow.kernels.emit.prefetch import fetch_early
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.products.linear import TiledFullyConnected, columns
from qglow.kernels.tiled.blocking import choose_blocking
from qglow.kernels.tiled.geometry import linear_geometry
from qglow.kernels.tiled.packing import must_clamp_first
from qglow.kernels.tiles.tile import MicroTile, PairTile
from qglow.targets.x86.machine import FAR_WEIGHTS, FEW_ROWS, NARROW_COST

BYTES_AHEAD = 12 * 1024
"""How far ahead weights are fetched: the processor's own prefetchers stop at every page."""


@dataclass(frozen=True)
class NarrowPairTile(PairTile):
    """Tile of 16-bit products whose weights are bytes in far memory, four a channel."""

    def load_weights(self, e: Emitter, pointer: Value) -> tuple[Value, ...]:
        """Load bytes, which are fetched early, and widen them."""
        fetch_early(e, pointer, BYTES_AHEAD, 1, first_level=True)
        return self.load_bytes(e, pointer)


@dataclass(frozen=True)
class NarrowFullyConnected(TiledFullyConnected):
    """A product of a few rows with a constant matrix of bytes."""

    name: ClassVar[str] = "narrowfullyconnected"

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cycles of the product, beside those of a kernel that reads words."""
        return NARROW_COST * super().cost(instruction, target)

    def tile(self, instruction: Instruction, target: VectorTarget) -> MicroTile:
        """The tile of bytes."""
        return _tile(target)


def is_bound_by_memory(instruction: Instruction) -> bool:
    """Whether few rows read so many weights that these come from far memory."""
    data = instruction.operand("filter").data
    few = instruction.operand("dest").type.shape[0] <= FEW_ROWS
    return data is not None and few and data.nbytes >= FAR_WEIGHTS


def narrow_products(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the kernel with the cheapest blocking by estimate."""
    found = choose_blocking(linear_geometry(instruction), _tile(target))
    clamp_first = must_clamp_first(instruction, columns(instruction))
    return [NarrowFullyConnected(found.pixels, found.vectors, found.by_rows, clamp_first)]


def _tile(target: VectorTarget) -> NarrowPairTile:
    pairs = target.vector_tile(2)
    assert pairs is not None
    return NarrowPairTile(target.float_lanes, target.registers, target.model, pairs, narrow=True)
