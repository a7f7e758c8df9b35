"""Products of int8 on AVX2 by lists of steps, which multiply bytes in pairs and stay exact.

Which steps of a block are of which kind depends on its weights (step_kinds); sums run over the lists of the
block, which say where in the window each step is. int32 sums are exact, so their order does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import ClassVar
from weakref import WeakKeyDictionary

from llvmlite import ir

from qglow.core.types import Array
from qglow.instructions.ops.blocks import BlockGemm
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.ops.linear import FullyConnected
from qglow.instructions.program import Instruction
from qglow.kernels.convolution.conv import TiledConvolution, constant_filter
from qglow.kernels.emit.builder import I32, I64, PTR, Index, Value
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.kernel import Kernel, Site, own_kernels
from qglow.kernels.emit.prefetch import fetch_early
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.products.linear import TiledFullyConnected, columns
from qglow.kernels.tiled.blocking import blocking_cost, choose_blocking
from qglow.kernels.tiled.geometry import Geometry, convolution_geometry, linear_geometry
from qglow.kernels.tiled.loops import Block, Pointers
from qglow.kernels.tiled.packing import must_clamp_first, product_constants
from qglow.kernels.tiled.product import VectorProduct
from qglow.targets.x86.byte_pairs import BytePairTile
from qglow.targets.x86.few_rows import NarrowFullyConnected, is_bound_by_memory, narrow_products
from qglow.targets.x86.machine import (
    FAR_COST,
    FLIPPED_COST,
    JOINED_COST,
    LOADED_COST,
    MASKED_COST,
    TURN_COST,
)
from qglow.targets.x86.short_blocks import ShortBlockProduct, short_block_products
from qglow.targets.x86.step_lists import (
    ENTRY_BYTES,
    FLIPPED,
    JOINED,
    LENGTH_FIELD,
    LIST_FIELDS,
    MASKED,
    PLACES,
    Shares,
    pack_lists,
    turn_bytes,
    typical_shares,
)

FEWEST_STEPS = 8
"""Fewest steps for lists: with fewer, or less than a vector of channels, they cost more than they save."""

MOST_FETCHING = 16
"""Most tiles that prefetch the weights of the next block: that costs each of them up to 4 % of its time."""
LONG_ROW = 128
"""Fewest steps of a row of activations for which fetching the next rows pays: short ones are near anyway."""


@dataclass(frozen=True)
class ListedTile(BytePairTile):
    """Average over all kinds of steps, for cost estimates.

    shares: shares of the kinds of steps, by the number of vectors of a block, from 1 on.
    row_bytes: bytes of activations that only one pixel reads, 0 where neighbours share them.
    """

    shares: tuple[Shares, ...] = ()
    row_bytes: int = 0

    @property
    def weight_bytes(self) -> int:
        """Average bytes of weights and masks of a step."""
        shares = self.shares[0]
        return round(super().weight_bytes * (1 + 0.5 * shares.flipped + shares.masked))

    def step_cycles(self, pixels: int, vectors: int) -> float:
        """Average cycles of a step, of all kinds by their shares."""
        shares, alone = self.shares[vectors - 1], super().step_cycles(pixels, vectors)
        cost = JOINED_COST * shares.joined + FLIPPED_COST * (shares.flipped + shares.single)
        # Lists read activations all over a row: each several times, which takes cache beside the weights.
        is_near = 2 * pixels * self.row_bytes <= self.model.near_bytes
        loaded = (LOADED_COST if is_near else FAR_COST) * pixels
        return (cost + MASKED_COST * shares.masked) * alone + loaded + TURN_COST


@dataclass(frozen=True)
class ListedProduct(VectorProduct):
    """Product whose sums run over the lists of a block instead of the window."""

    tile: BytePairTile

    @property
    def vector_stride(self) -> int:
        """Bytes of one entry of the table of blocks."""
        return ENTRY_BYTES

    def next_block(self, block: Block) -> int:
        """Return 0: only the lists know how long a block is."""
        return 0

    def early_lines(self, block: Block, tiles: int) -> int:
        """Cache lines of weights that a tile fetches in each iteration: none where many tiles read them."""
        return super().early_lines(block, tiles) if tiles <= MOST_FETCHING else 0

    def turn_bytes(self, vectors: int) -> int:
        """Bytes of weights in one iteration over joined steps, as many as in most others."""
        return turn_bytes(self.tile, vectors)[JOINED]

    def add_products(
        self, pointers: Pointers, offsets: tuple[int, ...], sums: list[Value], vectors: int, lines: int
    ) -> list[Value]:
        """Emit a loop over each list in turn."""
        e, line = self.e, self.e.target.model.line_bytes
        lists = e.offset(pointers.weights, e.load(pointers.weights, I64, align=ENTRY_BYTES))
        ahead: Index = 0
        if lines:
            ahead = e.plus(pointers.ahead, e.load(e.offset(lists, LENGTH_FIELD), I64, align=8))
        following = self._following(pointers.src, offsets)
        # Lengths and places are data, so that layers of one shape share code whatever their weights are.
        for kind, size in enumerate(turn_bytes(self.tile, vectors)):
            fields = (e.offset(lists, 8 * (LIST_FIELDS * kind + field)) for field in range(LIST_FIELDS))
            turns, places, weights = (e.load(field, I64, align=8) for field in fields)
            with e.carrying_loop(0, turns, sums, name="listed") as carry:
                place = e.offset(lists, e.plus(places, e.scaled(carry.index, 4 * PLACES[kind])))
                start = e.offset(lists, e.plus(weights, e.scaled(carry.index, size)))
                fetch_early(e, start, ahead, lines)
                if following is not None:
                    fetch_early(e, following, e.scaled(carry.index, line), 1, first_level=True)
                at = [self._step_at(pointers.src, place, step) for step in range(PLACES[kind])]
                carry.next(self._add_turn(kind, at, start, offsets, carry.values))
            sums = carry.values
            if following is not None:
                following = e.offset(following, e.scaled(turns, line))
        return sums

    def _following(self, src: Value, offsets: tuple[int, ...]) -> Value | None:
        """Activations of the next tile, where they follow those of this one.

        The lists read them in no order that a processor could foresee, so each iteration fetches a line.
        """
        runs = self.geometry.runs
        if len(offsets) == 1 or runs.rows * runs.columns > 1 or runs.steps < LONG_ROW:
            return None
        return self.e.offset(src, len(offsets) * offsets[1])

    def _step_at(self, src: Value, place: Value, step: int) -> Value:
        e = self.e
        return e.offset(src, e.b.sext(e.load(e.offset(place, 4 * step), I32, align=4), I64))

    def _add_turn(
        self, kind: int, at: list[Value], weights: Value, offsets: tuple[int, ...], sums: list[Value]
    ) -> list[Value]:
        """Add the steps of one iteration, whose sources are at `at`.

        Pairs of joined steps are summed in 16 bits before they are widened, once, to 32. Masks follow the
        weights of flipped and masked ones, and invert activations of the last.
        """
        e, tile, vectors = self.e, self.tile, range(len(sums) // len(offsets))
        is_joined, has_mask = kind in (JOINED, FLIPPED), kind in (FLIPPED, MASKED)
        size, count = tile.weight_bytes, (len(at) + has_mask) * len(vectors)
        # Registers that sums leave hold weights for all pixels, since loads bound masked steps.
        kept = count if len(vectors) == 1 else min(count, tile.spare_registers(len(sums)))
        held = [tile.load_weights(e, e.offset(weights, n * size)) for n in range(kept)]
        result = []
        for number, offset in enumerate(offsets):
            weights = hidden(e, weights) if kept < count else weights
            activations = [tile.load_activation(e, e.offset(src, offset)) for src in at]
            loaded = held + [tile.load_weights(e, e.offset(weights, n * size)) for n in range(kept, count)]
            for v in vectors:
                parts = loaded[v :: len(vectors)]
                multiplied = list(activations)
                if has_mask:
                    multiplied[-1] = (e.b.xor(activations[-1][0], parts.pop()[0]),)
                pairs = [tile.pairs(e, *step) for step in zip(multiplied, parts, strict=True)]
                total = sums[number * len(vectors) + v]
                for pair in [reduce(e.b.add, pairs)] if is_joined else pairs:
                    total = tile.add_pairs(e, total, pair)
                result.append(total)
        return result


def hidden(e: Emitter, address: Value) -> Value:
    """The same address, of which LLVM knows nothing, so that it loads from there anew.

    It would keep all weights in registers for all pixels of a tile, which lack them then for sums.
    """
    code = ir.InlineAsm(ir.FunctionType(PTR, [PTR]), "", "=r,0")
    return e.b.call(code, [address])


def listed_tile(rows: Array, geometry: Geometry, target: VectorTarget) -> ListedTile:
    """The tile that estimates the cost of these weights, one row a channel."""
    tile = bytes_tile(target)
    shares, runs = typical_shares(tile, rows, geometry), geometry.runs
    row_bytes = 0 if runs.rows * runs.columns > 1 else runs.steps * runs.step
    return ListedTile(tile.lanes, tile.registers, tile.model, shares, row_bytes)


@dataclass(frozen=True)
class ListedConvolution(TiledConvolution):
    """A convolution by lists of steps."""

    name: ClassVar[str] = "listedconvolution"

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """Lists, bias and multiplier."""
        geometry = convolution_geometry(instruction)
        return _list_constants(instruction, constant_filter(instruction), geometry, self.vectors, target)

    def variants(self, instruction: Instruction, target: VectorTarget) -> list[Kernel]:
        """Other tiles and orders of loops."""
        return self.other_blockings(*_of_convolution(instruction, target))

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cycles of the product."""
        return blocking_cost(*_of_convolution(instruction, target), self.blocking)

    def product(self, site: Site, geometry: Geometry) -> VectorProduct:
        """The product on this kernel's tile."""
        return self.product_of(ListedProduct, bytes_tile(site.target), site, geometry)


@dataclass(frozen=True)
class ListedFullyConnected(TiledFullyConnected):
    """A product with a constant matrix by lists of steps."""

    name: ClassVar[str] = "listedfullyconnected"

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """Lists, bias and multiplier."""
        geometry = linear_geometry(instruction)
        return _list_constants(instruction, columns(instruction), geometry, self.vectors, target)

    def variants(self, instruction: Instruction, target: VectorTarget) -> list[Kernel]:
        """Other tiles."""
        return self.other_blockings(*_of_product(instruction, target))

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cycles of the product."""
        return blocking_cost(*_of_product(instruction, target), self.blocking)

    def product(self, site: Site, geometry: Geometry) -> VectorProduct:
        """The product on this kernel's tile."""
        return self.product_of(ListedProduct, bytes_tile(site.target), site, geometry)


def _list_constants(
    instruction: Instruction, filters: Array, geometry: Geometry, most_vectors: int, target: VectorTarget
) -> dict[str, Array]:
    """Lists, bias and multiplier; sums start from the bias, which holds what flipped steps lack too."""
    tile = bytes_tile(target)
    lists = pack_lists(tile, filters.reshape(len(filters), -1), geometry, most_vectors)
    found = product_constants(
        instruction, filters, geometry, tile, most_vectors, target, lambda *_: lists.data
    )
    return found | {"bias": found["bias"] + lists.lacking}


def bytes_tile(target: VectorTarget) -> BytePairTile:
    """The tile of all steps."""
    return BytePairTile(target.float_lanes, target.registers, target.model)


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
    """Return the kernel with the cheapest blocking by estimate, or none where lists do not apply.

    Lists are larger than the weights, so few rows that wait for memory have a kernel of their own.
    """
    if not _can_be_listed(instruction, target) or not _gains(linear_geometry(instruction), target):
        return []
    if is_bound_by_memory(instruction):
        return narrow_products(instruction, target)
    found = choose_blocking(*_of_product(instruction, target))
    clamp_first = must_clamp_first(instruction, columns(instruction))
    return [ListedFullyConnected(found.pixels, found.vectors, found.by_rows, clamp_first)]


LISTED_KERNELS = own_kernels(
    (ListedConvolution, ListedFullyConnected, NarrowFullyConnected, ShortBlockProduct),
    {
        Convolution: listed_convolutions,
        FullyConnected: listed_products,
        BlockGemm: short_block_products,
    },
)
