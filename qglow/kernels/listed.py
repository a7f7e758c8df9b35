"""int8 products on AVX2 by lists of steps: bytes in pairs where that is exact, 16 bits elsewhere.

Which steps of a block are of which kind depends on its weights (step_lists); sums run over the lists of the
block, which say where in the window each step is. int32 sums are exact, so their order does not matter.
Where many steps need 16 bits, the plain kernel is as fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from qglow.core.types import Array
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.ops.linear import FullyConnected
from qglow.instructions.program import Instruction
from qglow.kernels.builder import I32, I64, Index, Value
from qglow.kernels.conv import TiledConvolution, constant_filter
from qglow.kernels.conv_blocking import blocking_cost, choose_blocking
from qglow.kernels.conv_geometry import Geometry, convolution_geometry, linear_geometry
from qglow.kernels.conv_packing import must_clamp_first, product_constants
from qglow.kernels.isa import Isa
from qglow.kernels.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.linear import TiledFullyConnected, columns
from qglow.kernels.step_lists import (
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
from qglow.kernels.tile import BytePairTile, MicroTile, PairTile, select_tile
from qglow.kernels.tile_loops import Block, Pointers
from qglow.kernels.tile_product import VectorProduct, add_step, fetch_early

FEWEST_STEPS = 8
"""With fewer steps, or less than a vector of channels, lists cost more than they save."""
LISTS_COST = 1.05
"""Time of a product by lists over that of its steps [measured where no step fits]."""
JOINED_COST = 0.75
"""Of one of two joined steps: three multiplications instead of four."""


@dataclass(frozen=True)
class ListedTile(PairTile):
    """All kinds of steps as the estimate sees them.

    shares: of the kinds, by the number of vectors of a block, from 1 on.
    """

    shares: tuple[Shares, ...] = ()

    @property
    def bytes_tile(self) -> BytePairTile:
        """The tile of steps that fit."""
        return BytePairTile(self.lanes, self.registers)

    @property
    def weight_bytes(self) -> int:
        """Of a mean step."""
        return round(self.bytes_tile.weight_bytes * (1 + self.shares[0].wide))

    def step_cycles(self, pixels: int, vectors: int) -> float:
        """Of a mean step."""
        shares = self.shares[vectors - 1]
        wide, fit = super().step_cycles(pixels, vectors), self.bytes_tile.step_cycles(pixels, vectors)
        return shares.wide * wide + (shares.single + JOINED_COST * shares.joined) * fit


@dataclass(frozen=True)
class ListedProduct(VectorProduct):
    """Sums run over the lists of a block instead of the window."""

    @property
    def vector_stride(self) -> int:
        """An entry of the table."""
        return ENTRY_BYTES

    def next_block(self, block: Block) -> int:
        """Only the lists know how long they are."""
        return 0

    def turn_bytes(self, vectors: int) -> int:
        """The same for all lists."""
        return vectors * self.tile.weight_bytes

    def add_products(
        self, pointers: Pointers, offsets: tuple[int, ...], sums: list[Value], lines: int
    ) -> list[Value]:
        """One list after the other."""
        assert isinstance(self.tile, PairTile)
        e = self.e
        lists = e.offset(pointers.weights, e.load(pointers.weights, I64, align=ENTRY_BYTES))
        ahead: Index = 0
        if lines:
            ahead = e.plus(pointers.ahead, e.load(e.offset(lists, LENGTH_FIELD), I64, align=8))
        turn_bytes = self.turn_bytes(len(sums) // len(offsets))
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
        """Steps whose sources are at `at`, one by one."""
        step_bytes = len(sums) // len(offsets) * tile.weight_bytes
        for step, src in enumerate(at):
            sums = add_step(self.e, tile, src, self.e.offset(weights, step * step_bytes), offsets, sums)
        return sums

    def _add_joined(
        self, tile: BytePairTile, at: list[Value], weights: Value, offsets: tuple[int, ...], sums: list[Value]
    ) -> list[Value]:
        """Two steps whose pairs are added up in 16 bits before they are in 32."""
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


def listed_tile(rows: Array, geometry: Geometry, isa: Isa) -> ListedTile:
    """The tile for these weights, one row a channel."""
    tile = _pair_tile(isa)
    return ListedTile(tile.lanes, isa.registers, typical_shares(tile, rows, geometry))


@kernel
@dataclass(frozen=True)
class ListedConvolution(TiledConvolution):
    """A convolution by lists of steps."""

    name: ClassVar[str] = "listedconvolution"

    def constants(self, instruction: Instruction, isa: Isa) -> dict[str, Array]:
        """Lists, bias and multiplier."""
        geometry, tile = convolution_geometry(instruction), _pair_tile(isa)
        filters = constant_filter(instruction)
        pack = partial(pack_lists, tile)
        return product_constants(instruction, filters, geometry, tile, self.vectors, isa, pack)

    def variants(self, instruction: Instruction, isa: Isa) -> list[Kernel]:
        """Other tiles and orders of loops."""
        return self.other_blockings(*_of_convolution(instruction, isa))

    def cost(self, instruction: Instruction, isa: Isa) -> float:
        """Cycles of the product."""
        return LISTS_COST * blocking_cost(*_of_convolution(instruction, isa), self.blocking)

    def product(self, site: Site, geometry: Geometry) -> VectorProduct:
        """The product on this kernel's tile."""
        return self.product_of(ListedProduct, _pair_tile(site.isa), site, geometry)


@kernel
@dataclass(frozen=True)
class ListedFullyConnected(TiledFullyConnected):
    """A product with a constant matrix by lists of steps."""

    name: ClassVar[str] = "listedfullyconnected"

    def constants(self, instruction: Instruction, isa: Isa) -> dict[str, Array]:
        """Lists, bias and multiplier."""
        geometry, tile = linear_geometry(instruction), _pair_tile(isa)
        pack = partial(pack_lists, tile)
        return product_constants(instruction, columns(instruction), geometry, tile, self.vectors, isa, pack)

    def variants(self, instruction: Instruction, isa: Isa) -> list[Kernel]:
        """Other tiles."""
        return self.other_blockings(*_of_product(instruction, isa))

    def cost(self, instruction: Instruction, isa: Isa) -> float:
        """Cycles of the product."""
        return LISTS_COST * blocking_cost(*_of_product(instruction, isa), self.blocking)

    def product(self, site: Site, geometry: Geometry) -> VectorProduct:
        """The product on this kernel's tile."""
        return self.product_of(ListedProduct, _pair_tile(site.isa), site, geometry)


def _pair_tile(isa: Isa) -> PairTile:
    tile = select_tile(isa, False)
    assert isinstance(tile, PairTile)
    return tile


def _of_convolution(instruction: Instruction, isa: Isa) -> tuple[Geometry, ListedTile]:
    geometry, filters = convolution_geometry(instruction), constant_filter(instruction)
    return geometry, listed_tile(filters.reshape(len(filters), -1), geometry, isa)


def _of_product(instruction: Instruction, isa: Isa) -> tuple[Geometry, ListedTile]:
    geometry = linear_geometry(instruction)
    return geometry, listed_tile(columns(instruction), geometry, isa)


def _can_be_listed(instruction: Instruction, isa: Isa) -> bool:
    """Whether bytes are multiplied in pairs here, and there are constant int8 weights."""
    is_int8 = not instruction.operand("src").type.is_float
    return is_int8 and isa.tile("vpmaddwd") is not None and instruction.operand("filter").data is not None


def _gains(geometry: Geometry, isa: Isa) -> bool:
    """Whether there is enough work in a list."""
    return geometry.runs.total_steps >= FEWEST_STEPS and geometry.filters >= isa.float_lanes


@candidates_for(Convolution)
def listed_convolutions(instruction: Instruction, isa: Isa) -> list[Kernel]:
    """The blocking with the least estimated cost."""
    if not _can_be_listed(instruction, isa) or not _gains(convolution_geometry(instruction), isa):
        return []
    found = choose_blocking(*_of_convolution(instruction, isa))
    clamp_first = must_clamp_first(instruction, constant_filter(instruction))
    return [ListedConvolution(found.pixels, found.vectors, found.by_rows, clamp_first)]


@candidates_for(FullyConnected)
def listed_products(instruction: Instruction, isa: Isa) -> list[Kernel]:
    """The blocking with the least estimated cost."""
    if not _can_be_listed(instruction, isa) or not _gains(linear_geometry(instruction), isa):
        return []
    found = choose_blocking(*_of_product(instruction, isa))
    clamp_first = must_clamp_first(instruction, columns(instruction))
    return [ListedFullyConnected(found.pixels, found.vectors, found.by_rows, clamp_first)]
