"""Products of int8 on AVX2 by lists of steps: bytes in pairs where that is exact, 16 bits elsewhere.

Which steps of a block are of which kind depends on its weights (step_lists); sums run over the lists of the
block, which say where in the window each step is. int32 sums are exact, so their order does not matter.
Where many steps need 16 bits, the plain kernel is as fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar
from weakref import WeakKeyDictionary

from qglow.core.types import Array
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.ops.linear import FullyConnected
from qglow.instructions.program import Instruction
from qglow.kernels.convolution.conv import TiledConvolution, constant_filter
from qglow.kernels.emit.builder import I32, I64, Index, Value
from qglow.kernels.emit.kernel import Kernel, Site, own_kernels
from qglow.kernels.emit.prefetch import fetch_early
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.products.linear import TiledFullyConnected, columns
from qglow.kernels.tiled.blocking import blocking_cost, choose_blocking
from qglow.kernels.tiled.geometry import Geometry, convolution_geometry, linear_geometry
from qglow.kernels.tiled.loops import Block, Pointers
from qglow.kernels.tiled.packing import must_clamp_first, product_constants
from qglow.kernels.tiled.product import VectorProduct
from qglow.kernels.tiles.tile import MicroTile, PairTile, select_tile
from qglow.targets.x86.byte_pairs import BytePairTile
from qglow.targets.x86.machine import JOINED_COST, LISTS_COST
from qglow.targets.x86.step_lists import (
    ENTRY_BYTES,
    JOINED,
    LENGTH_FIELD,
    LIST_FIELDS,
    PLACES,
    Shares,
    list_tiles,
    pack_lists,
    typical_shares,
)

FEWEST_STEPS = 8
"""Fewest steps for lists: with fewer, or less than a vector of channels, they cost more than they save."""


@dataclass(frozen=True)
class ListedTile(PairTile):
    """Average over all kinds of steps, for cost estimates.

    shares: shares of the kinds of steps, by the number of vectors of a block, from 1 on.
    """

    shares: tuple[Shares, ...] = ()

    @property
    def bytes_tile(self) -> BytePairTile:
        """The tile of steps whose pairs fit into 16 bits."""
        return BytePairTile(self.lanes, self.registers, self.model)

    @property
    def weight_bytes(self) -> int:
        """Average bytes of weights of a step; a wide step has twice as many as others."""
        return round(self.bytes_tile.weight_bytes * (1 + self.shares[0].wide))

    def step_cycles(self, pixels: int, vectors: int) -> float:
        """Average cycles of a step: wide, single and joined ones by their shares."""
        shares = self.shares[vectors - 1]
        wide, fit = super().step_cycles(pixels, vectors), self.bytes_tile.step_cycles(pixels, vectors)
        return shares.wide * wide + (shares.single + JOINED_COST * shares.joined) * fit


@dataclass(frozen=True)
class ListedProduct(VectorProduct):
    """Product whose sums run over the lists of a block instead of the window."""

    @property
    def vector_stride(self) -> int:
        """Bytes of one entry of the table of blocks."""
        return ENTRY_BYTES

    def next_block(self, block: Block) -> int:
        """Return 0: only the lists know how long a block is."""
        return 0

    def turn_bytes(self, vectors: int) -> int:
        """Bytes of weights in one iteration, the same for all lists."""
        return vectors * self.tile.weight_bytes

    def add_products(
        self, pointers: Pointers, offsets: tuple[int, ...], sums: list[Value], vectors: int, lines: int
    ) -> list[Value]:
        """Emit a loop over each list in turn."""
        assert isinstance(self.tile, PairTile)
        e = self.e
        lists = e.offset(pointers.weights, e.load(pointers.weights, I64, align=ENTRY_BYTES))
        ahead: Index = 0
        if lines:
            ahead = e.plus(pointers.ahead, e.load(e.offset(lists, LENGTH_FIELD), I64, align=8))
        turn_bytes = self.turn_bytes(vectors)
        # Lengths and places are data, so that layers of one shape share code whatever their weights are.
        for number, tile in enumerate(list_tiles(self.tile)):
            fields = (e.offset(lists, 8 * (LIST_FIELDS * number + field)) for field in range(LIST_FIELDS))
            turns, places, weights = (e.load(field, I64, align=8) for field in fields)
            with e.carrying_loop(0, turns, sums, name="listed") as carry:
                place = e.offset(lists, e.plus(places, e.scaled(carry.index, 4 * PLACES[number])))
                start = e.offset(lists, e.plus(weights, e.scaled(carry.index, turn_bytes)))
                fetch_early(e, start, ahead, lines)
                at = [self._step_at(pointers.src, place, step) for step in range(PLACES[number])]
                if number == JOINED:
                    assert isinstance(tile, BytePairTile)
                    carry.next(self._add_joined(tile, at, start, offsets, carry.values))
                else:
                    carry.next(self._add_each(tile, at, start, offsets, carry.values))
            sums = carry.values
        return sums

    def _step_at(self, src: Value, place: Value, step: int) -> Value:
        e = self.e
        return e.offset(src, e.b.sext(e.load(e.offset(place, 4 * step), I32, align=4), I64))

    def _add_each(
        self, tile: MicroTile, at: list[Value], weights: Value, offsets: tuple[int, ...], sums: list[Value]
    ) -> list[Value]:
        """Add the steps whose sources are at `at`, one by one."""
        step_bytes = len(sums) // len(offsets) * tile.weight_bytes
        for step, src in enumerate(at):
            sums = tile.add_step(self.e, src, self.e.offset(weights, step * step_bytes), offsets, sums)
        return sums

    def _add_joined(
        self, tile: BytePairTile, at: list[Value], weights: Value, offsets: tuple[int, ...], sums: list[Value]
    ) -> list[Value]:
        """Add two steps whose pairs are summed in 16 bits before they are widened, once, to 32."""
        e, vectors = self.e, range(len(sums) // len(offsets))
        size, joined = tile.weight_bytes, range(len(at))
        loaded = [
            [tile.load_weights(e, e.offset(weights, (step * len(vectors) + v) * size)) for step in joined]
            for v in vectors
        ]
        result = []
        for number, offset in enumerate(offsets):
            activations = [tile.load_activation(e, e.offset(src, offset)) for src in at]
            for v in vectors:
                one, other = (tile.pairs(e, activations[step], loaded[v][step]) for step in joined)
                total = sums[number * len(vectors) + v]
                result.append(tile.add_pairs(e, total, e.b.add(one, other)))
        return result


def listed_tile(rows: Array, geometry: Geometry, target: VectorTarget) -> ListedTile:
    """The tile that estimates the cost of these weights, one row a channel."""
    tile = _pair_tile(target)
    shares = typical_shares(tile, rows, geometry)
    return ListedTile(tile.lanes, tile.registers, tile.model, tile.multiply, shares=shares)


@dataclass(frozen=True)
class ListedConvolution(TiledConvolution):
    """A convolution by lists of steps."""

    name: ClassVar[str] = "listedconvolution"

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """Lists, bias and multiplier."""
        geometry, tile = convolution_geometry(instruction), _pair_tile(target)
        filters = constant_filter(instruction)
        pack = partial(pack_lists, tile)
        return product_constants(instruction, filters, geometry, tile, self.vectors, target, pack)

    def variants(self, instruction: Instruction, target: VectorTarget) -> list[Kernel]:
        """Other tiles and orders of loops."""
        return self.other_blockings(*_of_convolution(instruction, target))

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cycles of the product."""
        return LISTS_COST * blocking_cost(*_of_convolution(instruction, target), self.blocking)

    def product(self, site: Site, geometry: Geometry) -> VectorProduct:
        """The product on this kernel's tile."""
        return self.product_of(ListedProduct, _pair_tile(site.target), site, geometry)


@dataclass(frozen=True)
class ListedFullyConnected(TiledFullyConnected):
    """A product with a constant matrix by lists of steps."""

    name: ClassVar[str] = "listedfullyconnected"

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """Lists, bias and multiplier."""
        geometry, tile = linear_geometry(instruction), _pair_tile(target)
        pack = partial(pack_lists, tile)
        return product_constants(
            instruction, columns(instruction), geometry, tile, self.vectors, target, pack
        )

    def variants(self, instruction: Instruction, target: VectorTarget) -> list[Kernel]:
        """Other tiles."""
        return self.other_blockings(*_of_product(instruction, target))

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cycles of the product."""
        return LISTS_COST * blocking_cost(*_of_product(instruction, target), self.blocking)

    def product(self, site: Site, geometry: Geometry) -> VectorProduct:
        """The product on this kernel's tile."""
        return self.product_of(ListedProduct, _pair_tile(site.target), site, geometry)


def _pair_tile(target: VectorTarget) -> PairTile:
    tile = select_tile(target, False)
    assert isinstance(tile, PairTile)
    return tile


def _of_convolution(instruction: Instruction, target: VectorTarget) -> tuple[Geometry, ListedTile]:
    filters = constant_filter(instruction)
    return _known_tile(
        instruction, filters.reshape(len(filters), -1), convolution_geometry(instruction), target
    )


def _of_product(instruction: Instruction, target: VectorTarget) -> tuple[Geometry, ListedTile]:
    return _known_tile(instruction, columns(instruction), linear_geometry(instruction), target)


_TILES: WeakKeyDictionary[Instruction, tuple[Array | None, Geometry, str, ListedTile]] = WeakKeyDictionary()
"""Tiles by instruction, each with weights, geometry and target: examining weights takes long."""


def _known_tile(
    instruction: Instruction, rows: Array, geometry: Geometry, target: VectorTarget
) -> tuple[Geometry, ListedTile]:
    data, known = instruction.operand("filter").data, _TILES.get(instruction)
    if known is None or known[0] is not data or known[1:3] != (geometry, target.name):
        known = _TILES[instruction] = data, geometry, target.name, listed_tile(rows, geometry, target)
    return geometry, known[3]


def _can_be_listed(instruction: Instruction, target: VectorTarget) -> bool:
    """Whether bytes are multiplied in pairs here, and there are constant int8 weights."""
    is_int8 = not instruction.operand("src").type.is_float
    return is_int8 and target.tile("vpmaddwd") is not None and instruction.operand("filter").data is not None


def _gains(geometry: Geometry, target: VectorTarget) -> bool:
    """Whether there are enough steps and channels for lists to save more than they cost."""
    return geometry.runs.total_steps >= FEWEST_STEPS and geometry.filters >= target.float_lanes


def listed_convolutions(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the kernel with the cheapest blocking by estimate, or none where lists do not apply."""
    if not _can_be_listed(instruction, target) or not _gains(convolution_geometry(instruction), target):
        return []
    found = choose_blocking(*_of_convolution(instruction, target))
    clamp_first = must_clamp_first(instruction, constant_filter(instruction))
    return [ListedConvolution(found.pixels, found.vectors, found.by_rows, clamp_first)]


def listed_products(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the kernel with the cheapest blocking by estimate, or none where lists do not apply."""
    if not _can_be_listed(instruction, target) or not _gains(linear_geometry(instruction), target):
        return []
    found = choose_blocking(*_of_product(instruction, target))
    clamp_first = must_clamp_first(instruction, columns(instruction))
    return [ListedFullyConnected(found.pixels, found.vectors, found.by_rows, clamp_first)]


LISTED_KERNELS = own_kernels(
    (ListedConvolution, ListedFullyConnected),
    {Convolution: listed_convolutions, FullyConnected: listed_products},
)
