"""Steps of recurrent layers: products of the states with packed weights, then the cells (recurrent_cells).

Sequences are independent, so threads share them; a block of sequences runs through all steps before the next
block begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.types import Array
from qglow.instructions.ops.recurrence import RecurrentLayer
from qglow.instructions.program import Instruction
from qglow.kernels.emit.builder import F32, Index, Value, scalar, vec
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.products.matmul import pieces
from qglow.kernels.products.recurrent_cells import STEP_BYTES, Cells, StateLayout, emit_packing, operation_of
from qglow.kernels.tiled.packing import fold_zero_point
from qglow.kernels.tiles.tile import MicroTile, constant_tile, select_tile

MOST_ROWS = 4
"""Most sequences whose products are made together."""


def _parts(operation: RecurrentLayer, gate_vectors: int) -> Iterator[tuple[int, int]]:
    """Groups of columns that one product computes, in vectors: the first one and their number."""
    last = 1 if operation.resets_state else 0
    yield 0, (operation.gates - last) * gate_vectors
    if last:
        yield (operation.gates - last) * gate_vectors, gate_vectors


@kernel
@dataclass(frozen=True)
class StepByStep(Kernel):
    """All steps of `rows` sequences at a time, with products in tiles of `rows` x `vectors` accumulators.

    room: bytes of working memory, which depend on the target's vectors.
    """

    name: ClassVar[str] = "step-by-step"

    rows: int = 1
    vectors: int = 1
    room: int = 0

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """Weights in the order of blocks, and for int8 multipliers and what zero points add to the sums."""
        is_float = instruction.operand("hidden").type.is_float
        tile = _tile(target, is_float)
        layout = StateLayout.of(instruction, tile.lanes)
        weights = instruction.operand("filter").data
        if weights is None:
            return {}
        rows = layout.spread(np.ascontiguousarray(weights.T))
        packed = {"filter": self._packed(rows, layout, tile, operation_of(instruction))}
        if is_float:
            return packed
        quantization, multiplier = (
            instruction.operand("hidden").type.quantization,
            instruction.operand("multiplier"),
        )
        assert quantization is not None and multiplier.data is not None
        zeros = np.zeros(len(rows), np.int32)
        packed["multiplier"] = layout.spread(multiplier.data.astype(np.float32))
        packed["start"] = fold_zero_point(rows, zeros, quantization.zero_point + target.activation_bias)
        return packed

    def _packed(self, rows: Array, layout: StateLayout, tile: MicroTile, operation: RecurrentLayer) -> Array:
        """Order weights [columns, H] by block, step, and vector of the block."""
        each = 1 if layout.is_float else STEP_BYTES
        filled = np.pad(rows, ((0, 0), (0, layout.steps * each - layout.width)))
        vectors = filled.reshape(-1, tile.lanes, layout.steps, each).transpose(0, 2, 1, 3)
        packed = tile.pack(np.ascontiguousarray(vectors))
        blocks = []
        for first, count in _parts(operation, layout.gate_vectors):
            for start, stop, size in pieces(count, self.vectors):
                for block in range(first + start, first + stop, size):
                    blocks.append(packed[block : block + size].transpose(1, 0, 2).reshape(-1))
        return np.concatenate(blocks)

    def scratch_bytes(self, instruction: Instruction) -> int:
        """Working memory of all sequences."""
        return self.room

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Estimated cycles of products and cells."""
        tile = _tile(target, instruction.operand("hidden").type.is_float)
        layout = StateLayout.of(instruction, tile.lanes)
        steps, batch, _ = instruction.operand("src").type.shape
        blocks = sum(
            -(-count // self.vectors) for _, count in _parts(operation_of(instruction), layout.gate_vectors)
        )
        products = -(-batch // self.rows) * blocks * layout.steps * tile.step_cycles(self.rows, self.vectors)
        cells = batch * layout.gate_vectors * (layout.gates + 1) * target.model.loops.normalized_vector
        return float(steps * (products + cells))

    def emit(self, site: Site) -> None:
        """Emit a loop over blocks of sequences, which threads share."""
        e, batch = site.e, site["hidden"].shape[0]
        tile = _tile(site.target, site["hidden"].is_float)
        layout = StateLayout.of(site.instruction, tile.lanes)
        share = e.share(-(-batch // self.rows))
        for start, stop, height in pieces(batch, self.rows):
            count = -(-(stop - start) // height)
            first = start // self.rows
            with e.shared_loop(share, first, count, "sequences") as number:
                row = e.plus(e.scaled(number, height), start)
                weights = site.constants.get("filter")
                if weights is None:
                    places = e.offset(site.scratch, layout.row_bytes * batch)
                    own = e.scaled(e.plus(number, first), layout.weights_bytes)
                    weights = emit_packing(site, layout, e.offset(places, own))
                _Sequences(site, tile, layout, self.vectors, row, height, weights).emit()


@dataclass(frozen=True)
class _Sequences:
    """Emitter of all steps of `height` sequences from `row` on. weights: address of the packed weights."""

    site: Site
    tile: MicroTile
    layout: StateLayout
    vectors: int
    row: Index
    height: int
    weights: Value

    def emit(self) -> None:
        """Emit the first states, then a loop over steps: products, then cells.

        Steps behind the ends of all sequences are not computed: they leave the states as they are.
        """
        site, layout = self.site, self.layout
        e, operation, steps = site.e, operation_of(site.instruction), site["src"].shape[0]
        cells = [Cells(site, layout, e.plus(self.row, number)) for number in range(self.height)]
        for sequence in cells:
            sequence.begin(steps if operation.reverse else 0)
        longest = self._longest(cells, steps)
        if operation.reverse:
            self._hold(cells, longest, steps)
            self._steps(cells, longest)
        else:
            self._steps(cells, longest)
            self._hold(cells, e.plus(longest, 1), steps + 1)

    def _longest(self, cells: Sequence[Cells], steps: int) -> Index:
        """Steps until the last of the sequences ends."""
        e, longest = self.site.e, cells[0].length
        if longest is None:
            return steps
        for sequence in cells[1:]:
            assert sequence.length is not None, "all sequences have a length"
            longest = e.maximum(longest, sequence.length)
        return e.minimum(e.maximum(longest, 0), steps)

    def _hold(self, cells: Sequence[Cells], first: Index, stop: int) -> None:
        """Emit rows of the result that have the states as they are."""
        if first != stop:
            with self.site.e.loop(first, stop, name="held") as row:
                for sequence in cells:
                    sequence.hold(row)

    def _steps(self, cells: Sequence[Cells], count: Index) -> None:
        """Emit the first steps, the last of them first in reverse."""
        site, layout = self.site, self.layout
        e, operation = site.e, operation_of(site.instruction)
        whole, *rest = _parts(operation, layout.gate_vectors)
        with e.loop(0, count, name="step") as index:
            time = e.plus(count, e.plus(e.scaled(index, -1), -1)) if operation.reverse else index
            self._product([sequence.state for sequence in cells], cells, *whole)
            for part in rest:
                for sequence in cells:
                    sequence.reset(time)
                self._product([sequence.reset_state for sequence in cells], cells, *part)
            for sequence in cells:
                sequence.step(time)

    def _product(self, states: Sequence[Value], cells: Sequence[Cells], first: int, count: int) -> None:
        """Emit sums of `count` vectors of columns from the vector `first` on."""
        for start, stop, size in pieces(count, self.vectors):
            with self.site.e.loop(first + start, first + stop, size, "columns") as vector:
                self._block(states, cells, vector, size)

    def _block(self, states: Sequence[Value], cells: Sequence[Cells], vector: Index, size: int) -> None:
        e, tile, steps = self.site.e, self.tile, self.layout.steps
        weights = e.offset(self.weights, e.scaled(vector, steps * tile.weight_bytes))
        # Weights that are computed are packed vector by vector, constant ones step by step.
        constant = "filter" in self.site.constants
        a_step, a_vector = (size, 1) if constant else (1, steps)
        column = e.scaled(vector, tile.accumulator_bytes)
        with e.carrying_loop(0, steps, self._start(column, size) * self.height, name="k") as carry:
            place = e.offset(weights, e.scaled(carry.index, a_step * tile.weight_bytes))
            places = [e.offset(place, v * a_vector * tile.weight_bytes) for v in range(size)]
            loaded = [tile.load_weights(e, at) for at in places]
            following = []
            for number, state in enumerate(states):
                activation = tile.load_activation(e, e.offset(state, e.scaled(carry.index, STEP_BYTES)))
                sums = carry.values[number * size : (number + 1) * size]
                following += [tile.accumulate(e, s, activation, w) for s, w in zip(sums, loaded, strict=True)]
            carry.next(following)
        for index, total in enumerate(carry.values):
            number, v = divmod(index, size)
            at = e.plus(column, v * tile.accumulator_bytes)
            e.store(self._real(total, at), e.offset(cells[number].sums, at))

    def _start(self, column: Index, size: int) -> list[Value]:
        """Starts of sums: 0 in float, the share of zero points in int8."""
        e, tile = self.site.e, self.tile
        if self.layout.is_float:
            return [scalar(tile.accumulator, 0.0)] * size
        start = e.offset(self.site.constants["start"], column)
        return [e.load(e.offset(start, v * tile.accumulator_bytes), tile.accumulator) for v in range(size)]

    def _real(self, total: Value, at: Index) -> Value:
        """A vector of sums in float."""
        if self.layout.is_float:
            return total
        e, kind = self.site.e, vec(F32, self.layout.lanes)
        factors = e.load(e.offset(self.site.constants["multiplier"], at), kind)
        return e.b.fmul(e.b.sitofp(total, kind), factors)


@candidates_for(RecurrentLayer)
def steps_by_tiles(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the kernel with as many vectors as registers have room for.

    There is none for int8 weights that are not constant, and none where there is nothing to do.
    """
    hidden, computed = instruction.operand("hidden").type, instruction.operand("filter").data is None
    if (computed and not hidden.is_float) or not instruction.operand("src").type.size:
        return []
    tile = _tile(target, hidden.is_float)
    layout = StateLayout.of(instruction, tile.lanes)
    batch = hidden.shape[0]
    rows = min(batch, MOST_ROWS)
    most = max(1, min(tile.most_vectors, layout.gate_vectors * layout.gates))
    vectors = next((v for v in range(most, 1, -1) if tile.most_pixels(v) >= rows), 1)
    rows = min(rows, tile.most_pixels(vectors))
    room = batch * layout.row_bytes + (-(-batch // rows) * layout.weights_bytes if computed else 0)
    return [StepByStep(rows, vectors, room)]


def _tile(target: VectorTarget, is_float: bool) -> MicroTile:
    """The tile of the products of a step with constant weights."""
    return select_tile(target, True) if is_float else constant_tile(target)
