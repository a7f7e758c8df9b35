"""int8 products on AVX2 by lists of steps: bytes in pairs where that is exact, 16 bits elsewhere.

vpmaddubsw adds two products of bytes in 16 bits and saturates. It is exact for every activation where two
neighbouring weights add up to no more than 128 either way, which depends on the weights alone and holds for
most of them; a step of a block of vectors takes it if all of its pairs fit. For every block the constants say
where in the window the steps of one kind are, then those of the other. int32 sums are exact, so their order
does not matter. Where many steps do not fit, the plain kernel is as fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from qglow.core.types import Array
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.ops.linear import FullyConnected
from qglow.instructions.program import Instruction
from qglow.kernels.builder import I32, I64, Index, Value
from qglow.kernels.conv import TiledConvolution, constant_filter
from qglow.kernels.conv_blocking import blocking_cost, choose_blocking, divide
from qglow.kernels.conv_geometry import Geometry, Runs, convolution_geometry, linear_geometry
from qglow.kernels.conv_packing import filter_steps, must_clamp_first, product_constants
from qglow.kernels.isa import Isa
from qglow.kernels.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.linear import TiledFullyConnected, columns
from qglow.kernels.tile import BytePairTile, MicroTile, PairTile, fits_byte_pairs, select_tile
from qglow.kernels.tile_loops import Block, Pointers
from qglow.kernels.tile_product import VectorProduct, add_step, fetch_early

ENTRY_BYTES = 8
"""Of the table of blocks: how far behind its own place the lists of a block begin."""
HEADER_BYTES = 64
LENGTH_FIELD = 48
"""Of a header: where its block's length in bytes is."""
ALIGNMENT = 64
UNROLLED = (2, 1)
"""Steps in a turn of the loop over those that fit, and over the others: the same bytes of weights."""
FEWEST_STEPS = 8
"""With fewer steps, or less than a vector of channels, lists cost more than they save."""
LISTS_COST = 1.04
"""Time of a product by lists over that of its steps [measured where no step fits]."""


@dataclass(frozen=True)
class ListedTile(PairTile):
    """Both kinds of steps as the estimate sees them.

    unfit: share of the steps that need 16 bits, by the number of vectors of a block, from 1 on.
    """

    unfit: tuple[float, ...] = ()

    @property
    def bytes_tile(self) -> BytePairTile:
        """The tile of steps that fit."""
        return BytePairTile(self.lanes, self.registers)

    @property
    def weight_bytes(self) -> int:
        """Of a mean step."""
        return round(self.bytes_tile.weight_bytes * (1 + self.unfit[0]))

    def step_cycles(self, pixels: int, vectors: int) -> float:
        """Of a mean step."""
        unfit = self.unfit[vectors - 1]
        fit = self.bytes_tile.step_cycles(pixels, vectors)
        return fit + unfit * (super().step_cycles(pixels, vectors) - fit)


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
        """The same for both lists."""
        return vectors * self.tile.weight_bytes

    def add_products(
        self, pointers: Pointers, offsets: tuple[int, ...], sums: list[Value], lines: int
    ) -> list[Value]:
        """All steps that fit, then the others."""
        assert isinstance(self.tile, PairTile)
        e = self.e
        lists = e.offset(pointers.weights, e.load(pointers.weights, I64, align=ENTRY_BYTES))
        ahead: Index = 0
        if lines:
            ahead = e.plus(pointers.ahead, e.load(e.offset(lists, LENGTH_FIELD), I64, align=8))
        for number, tile in enumerate(_kinds(self.tile)):
            sums = self._add_list(lists, number, tile, pointers.src, offsets, sums, ahead, lines)
        return sums

    def _add_list(
        self,
        lists: Value,
        number: int,
        tile: MicroTile,
        src: Value,
        offsets: tuple[int, ...],
        sums: list[Value],
        ahead: Index,
        lines: int,
    ) -> list[Value]:
        e, unrolled = self.e, UNROLLED[number]
        turns, places, weights = (
            e.load(e.offset(lists, 8 * (3 * number + field)), I64, align=8) for field in range(3)
        )
        step_bytes = len(sums) // len(offsets) * tile.weight_bytes
        with e.carrying_loop(0, turns, sums, name="listed") as carry:
            inner = carry.values
            place = e.offset(lists, e.plus(places, e.scaled(carry.index, 4 * unrolled)))
            start = e.offset(lists, e.plus(weights, e.scaled(carry.index, step_bytes * unrolled)))
            fetch_early(e, start, ahead, lines)
            for step in range(unrolled):
                apart = e.b.sext(e.load(e.offset(place, 4 * step), I32, align=4), I64)
                at = e.offset(src, apart), e.offset(start, step * step_bytes)
                inner = add_step(e, tile, *at, offsets, inner)
            carry.next(inner)
        return carry.values


def pack_lists(tile: PairTile, rows: Array, geometry: Geometry, most_vectors: int) -> Array:
    """The table of blocks, an entry a vector, then the lists of each.

    `rows` is one row of weights a channel in ascending (kh, kw, c). A block has a header of three int64 a
    list (turns of its loop, where the places of its steps and their weights begin) and one for its length,
    then for each list the places as int32 and the weights.
    """
    places = _step_places(geometry.runs)
    groups = filter_steps(rows, geometry, tile)
    vectors = groups.shape[1]
    table = np.zeros(geometry.groups * vectors, np.int64)
    parts = [np.zeros(_aligned(table.nbytes), np.uint8)]
    end = parts[0].size
    for number, group in enumerate(groups):
        for first, size in _blocks(vectors, most_vectors):
            entry = number * vectors + first
            table[entry] = end - entry * ENTRY_BYTES
            parts.append(_pack_block(tile, group[first : first + size], places))
            end += parts[-1].size
    parts[0][: table.nbytes] = table.view(np.uint8)
    return np.concatenate(parts)


def _pack_block(tile: PairTile, block: Array, places: Array) -> Array:
    """Header and lists of the weights [vectors, steps, lanes, 4] of a block."""
    fits = fits_byte_pairs(block).all(axis=(0, 2, 3))
    header = np.zeros(HEADER_BYTES // 8, np.int64)
    parts, end = [], HEADER_BYTES
    for number, (kind, wanted) in enumerate(zip(_kinds(tile), (True, False), strict=True)):
        steps = np.flatnonzero(fits == wanted)
        missing = -len(steps) % UNROLLED[number]
        weights = np.pad(block[:, steps], ((0, 0), (0, missing), (0, 0), (0, 0)))
        packed = kind.pack(weights).transpose(1, 0, 2)
        where = np.pad(places[steps], (0, missing))
        header[3 * number] = len(where) // UNROLLED[number]
        for field, data in ((1, where), (2, packed)):
            header[3 * number + field] = end
            data = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
            parts.append(np.pad(data, (0, -data.size % ALIGNMENT)))
            end += parts[-1].size
    header[LENGTH_FIELD // 8] = end
    return np.concatenate([header.view(np.uint8), *parts])


def _kinds(tile: PairTile) -> tuple[MicroTile, MicroTile]:
    """Tiles of both lists."""
    return BytePairTile(tile.lanes, tile.registers), tile


def _blocks(vectors: int, most_vectors: int) -> Iterator[tuple[int, int]]:
    """First vector and size of every block."""
    for piece in divide(vectors, most_vectors):
        for block in range(piece.count):
            yield piece.start + block * piece.size, piece.size


def _step_places(runs: Runs) -> Array:
    """Bytes from a pixel's address to each of its steps, int32."""
    rows, columns, steps = np.ogrid[: runs.rows, : runs.columns, : runs.steps]
    places = rows * runs.row_stride + columns * runs.column_stride + steps * runs.step
    return np.asarray(places, np.int32).reshape(-1)


def _aligned(size: int) -> int:
    return size + -size % ALIGNMENT


def listed_tile(rows: Array, geometry: Geometry, isa: Isa) -> ListedTile:
    """The tile for these weights, one row a channel."""
    tile = _pair_tile(isa)
    unfit: Array = ~fits_byte_pairs(filter_steps(rows, geometry, tile))
    groups, total, steps = unfit.shape[:3]
    unfit = unfit.reshape(groups, total, steps, -1).max(axis=-1)
    shares = []
    for vectors in range(1, min(tile.most_vectors, total) + 1):
        blocks = [unfit[:, first : first + size].max(axis=1) for first, size in _blocks(total, vectors)]
        shares.append(float(np.mean(blocks)))
    return ListedTile(tile.lanes, isa.registers, tuple(shares))


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
