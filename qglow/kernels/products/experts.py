"""Products of rows with the matrices of experts: rows of the same expert are multiplied together.

Panels of the experts' columns follow one another in memory, those of the first expert first. Rows are copied
in the order of their experts, so that a tile of rows reads them side by side; results go to the places of
rows as they were. A row has the same chains of multiply-adds whatever other rows there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from qglow.core.types import Array
from qglow.instructions.ops.experts import ExpertBlockGemm, ExpertGemm
from qglow.instructions.program import Instruction
from qglow.kernels.arithmetic.fused import EMULATED
from qglow.kernels.arithmetic.requantize import clamp_float
from qglow.kernels.convolution.border import copy_bytes
from qglow.kernels.emit.builder import F32, I32, I64, Index, Value, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.indices import chosen_index
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.packing import panels
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.products.blocks import MOST_VECTORS, BlockPanel, BlockProduct, in_panels
from qglow.kernels.products.matmul import MatrixRows, add_products

INDEX_BYTES = 4
"""Bytes of the number of a row."""
ALIGNED = 64
"""Bytes that copied rows begin at a multiple of."""


@dataclass(frozen=True)
class ExpertRows:
    """Rows of a product in the order of their experts, in working memory.

    It has the first place of each expert, and one behind the last, the number of the row at each place, and
    copies of the rows.
    """

    site: Site

    @property
    def e(self) -> Emitter:
        return self.site.e

    @property
    def starts(self) -> Value:
        """Address of the first place of each expert."""
        assert self.site.scratch is not None
        return self.site.scratch

    @property
    def numbers(self) -> Value:
        """Address of the numbers of rows."""
        return self.e.offset(self.starts, INDEX_BYTES * (self.site.operation.experts + 1))

    @property
    def copies(self) -> Value:
        """Address of the copies of rows."""
        return self.e.offset(self.starts, _index_bytes(self.site.instruction))

    def find(self) -> None:
        """Emit the search for the rows of each expert, and their copies.

        Every thread does it, with the same stores, and then need not wait for others.
        """
        e, src = self.e, self.site["src"]
        rows, columns = self.site["dest"].shape
        length = src.type.element.size * src.shape[1]
        live = e.live_pieces(rows, columns, rows * columns)
        with e.carrying_loop(0, self.site.operation.experts, [e.index(0)], name="expert") as outer:
            self._store(outer.values[0], self.starts, outer.index)
            with e.carrying_loop(0, live, [outer.values[0]], name="row") as inner:
                place = inner.values[0]
                chosen = chosen_index(self.site, inner.index, self.site.operation.experts, "experts")
                fits = e.b.icmp_signed("==", chosen, e.index(outer.index))
                with e.when(fits):
                    self._store(e.index(inner.index), self.numbers, place)
                    source = e.offset(src.pointer, e.scaled(inner.index, length))
                    dest = e.offset(self.copies, e.scaled(place, length))
                    copy_bytes(e, dest, source, length, self.site.target.byte_lanes)
                inner.next([e.b.add(place, e.b.zext(fits, I64))])
            outer.next([inner.values[0]])
        self._store(outer.values[0], self.starts, self.site.operation.experts)

    def bounds(self, expert: Index) -> tuple[Value, Value]:
        """Emit loads of the first place of an expert, and of the next one's."""
        return self._load(self.starts, expert), self._load(self.starts, self.e.plus(expert, 1))

    def number(self, place: Index) -> Value:
        """Emit a load of the number of the row at a place."""
        return self._load(self.numbers, place)

    def _store(self, value: Value, start: Value, place: Index) -> None:
        e = self.e
        e.store(e.b.trunc(value, I32), e.offset(start, e.scaled(place, INDEX_BYTES)))

    def _load(self, start: Value, place: Index) -> Value:
        e = self.e
        return e.b.sext(e.load(e.offset(start, e.scaled(place, INDEX_BYTES)), I32), I64)


def _index_bytes(instruction: Instruction) -> int:
    """Bytes of places and numbers of rows, up to where copies of rows begin."""
    operation, rows = instruction.operation, instruction.operand("src").type.shape[0]
    assert isinstance(operation, ExpertGemm | ExpertBlockGemm)
    return -(-INDEX_BYTES * (operation.experts + 1 + rows) // ALIGNED) * ALIGNED


def copied_bytes(instruction: Instruction) -> int:
    """Bytes of the order of rows and of their copies, up to where further working memory may begin."""
    return _index_bytes(instruction) + -(-instruction.operand("src").type.byte_size // ALIGNED) * ALIGNED


@dataclass(frozen=True)
class ExpertPlace:
    """Columns of a panel in a result: where they begin, and the rows of the places, None for the only row."""

    first: Index
    rows: ExpertRows | None

    def dest_rows(self, site: Site, place: Index, height: int) -> list[Value]:
        """Addresses of the columns in the results of `height` rows from a place on."""
        e, columns = site.e, site["dest"].shape[1]
        start = e.offset(site["dest"].pointer, e.scaled(self.first, 4))
        if self.rows is None:
            return [start]
        numbers = [self.rows.number(e.plus(place, r)) for r in range(height)]
        return [e.offset(start, e.scaled(number, 4 * columns)) for number in numbers]

    def scales_of_rows(self, site: Site, place: Index, height: int) -> list[Value]:
        """Addresses of the scales of `height` rows of integers from a place on."""
        e, start = site.e, site["rows"].pointer
        if self.rows is None:
            return [start]
        numbers = [self.rows.number(e.plus(place, r)) for r in range(height)]
        return [e.offset(start, e.scaled(number, 4)) for number in numbers]


class Panel(ABC):
    """Emitter of the product of rows with the columns of one panel."""

    @abstractmethod
    def emit_tile(self, row: Index, height: int) -> None:
        """Emit the results of `height` rows."""


class ExpertKernel(Kernel, ABC):
    """Panels of `vectors` vectors of an expert's columns, each multiplied with `rows` rows at a time."""

    limits_live: ClassVar[bool] = True
    rows: int
    vectors: int

    def scratch_bytes(self, instruction: Instruction) -> int:
        """Bytes of the order of rows and of their copies; none for one row."""
        return 0 if instruction.operand("src").type.shape[0] <= 1 else copied_bytes(instruction)

    def packings(self, instruction: Instruction, target: VectorTarget) -> dict[str, Any]:
        """None: look-ups read no columns of experts."""
        return {}

    def emit(self, site: Site) -> None:
        """Emit a loop over experts, around one over panels, which threads share."""
        e, (rows, columns) = site.e, site["dest"].shape
        if not site["dest"].type.size:
            return
        width = self.vectors * site.target.float_lanes
        share = e.share(-(-columns // width))
        if rows == 1:
            self.prepare(site)
            chosen = chosen_index(site, 0, site.operation.experts, "experts")
            self._panels(site, share, chosen, (0, 1), None)
            return
        found = ExpertRows(site)
        found.find()
        src = replace(site["src"], pointer=found.copies)
        behind = e.offset(found.starts, copied_bytes(site.instruction))
        ordered = replace(site, operands={**site.operands, "src": src}, scratch=behind)
        self.prepare(ordered)
        with e.loop(0, site.operation.experts, name="expert") as expert:
            first, end = found.bounds(expert)
            with e.when(e.b.icmp_signed("<", first, end)):
                self._panels(ordered, share, expert, (first, end), found)

    def prepare(self, site: Site) -> None:
        """Emit what is done once for all panels, of rows in the order of their experts."""

    def _panels(
        self,
        site: Site,
        share: tuple[Index, Index],
        expert: Index,
        places: tuple[Index, Index],
        found: ExpertRows | None,
    ) -> None:
        """Emit the products of the rows at some places with all columns of their expert."""
        e, columns = site.e, site["dest"].shape[1]
        width = self.vectors * site.target.float_lanes
        whole, rest = divmod(columns, width)
        base = e.scaled(expert, whole + bool(rest))
        for first, count, used in ((0, whole, width), (whole, int(bool(rest)), rest)):
            if not count:
                continue
            with e.shared_loop(share, first, count, "panel") as number:
                own = e.plus(number, first)
                to = ExpertPlace(e.scaled(own, width), found)
                self._tiles(e, self.panel(site, e.plus(base, own), used, to), places)

    def _tiles(self, e: Emitter, panel: Panel, places: tuple[Index, Index]) -> None:
        """Emit loops over the most rows of a tile, over half of them, and so on down to one."""
        (start, end), height = places, self.rows
        if isinstance(start, int):
            panel.emit_tile(start, 1)
            return
        while height:
            left = e.b.sub(end, e.index(start))
            tiles = e.b.sdiv(left, e.index(height))
            stop = e.b.add(e.index(start), e.b.mul(tiles, e.index(height)))
            with e.loop(start, stop, height, "rows") as row:
                panel.emit_tile(row, height)
            start, height = stop, height // 2

    @abstractmethod
    def panel(self, site: Site, number: Index, used: int, place: ExpertPlace) -> Any:
        """Emitter of a panel, of which so many columns are used."""


def expert_panels(instruction: Instruction, width: int, make: Any) -> dict[str, Array]:
    """Constants of all experts, the panels of each behind those of the one before.

    make: those of one expert, of its columns of all constants by their names.
    """
    operation, names = instruction.operation, ("filter", "scales", "zeros", "bias")
    assert isinstance(operation, ExpertGemm | ExpertBlockGemm)
    data = {s.name: b.data for s, b in instruction.operands() if b.data is not None and s.name in names}
    columns = instruction.operand("dest").type.shape[1]
    found: list[dict[str, Array]] = []
    for number in range(operation.experts):
        part = slice(number * columns, (number + 1) * columns)
        found.append(make({name: np.ascontiguousarray(array[..., part]) for name, array in data.items()}))
    return {name: np.concatenate([one[name] for one in found]) for name in found[0]}


@kernel
@dataclass(frozen=True)
class ExpertBlockProduct(ExpertKernel, BlockProduct):
    """Product with weights in blocks, which are unpacked in registers for the rows of a tile."""

    name: ClassVar[str] = "expertblockproduct"

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """Codes, scales, zero points and bias in the order of experts and panels."""
        operation, depth = instruction.operation, instruction.operand("src").type.shape[1]
        assert isinstance(operation, ExpertBlockGemm)
        width = self.vectors * target.float_lanes

        def make(data: Mapping[str, Array]) -> dict[str, Array]:
            return in_panels(data, operation.bits, depth, width)

        return expert_panels(instruction, width, make)

    def panel(self, site: Site, number: Index, used: int, place: ExpertPlace | None = None) -> BlockPanel:
        """Emitter of one panel."""
        assert place is not None
        return _BlockPanel(site, self, number, used, place)


@dataclass(frozen=True)
class _BlockPanel(BlockPanel, Panel):
    """Emitter of one panel with weights in blocks."""

    place: ExpertPlace

    def dest_rows(self, row: Index, height: int) -> list[Value]:
        """Addresses in the results of the rows at places from `row` on."""
        return self.place.dest_rows(self.site, row, height)


@kernel
@dataclass(frozen=True)
class ExpertProduct(ExpertKernel):
    """Product with weights of floats."""

    name: ClassVar[str] = "expertproduct"

    rows: int = 1
    vectors: int = 1

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """Weights and bias in the order of experts and panels."""
        width = self.vectors * target.float_lanes

        def make(data: Mapping[str, Array]) -> dict[str, Array]:
            return {name: panels(np.atleast_2d(array), width) for name, array in data.items()}

        return expert_panels(instruction, width, make)

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cycles of multiply-adds."""
        rows, depth = instruction.operand("src").type.shape
        columns = instruction.operand("dest").type.shape[1]
        each = 1.0 if target.has_fma else EMULATED
        return rows * depth * -(-columns // target.float_lanes) * each / target.model.products_a_cycle

    def panel(self, site: Site, number: Index, used: int, place: ExpertPlace) -> _FloatPanel:
        """Emitter of one panel."""
        return _FloatPanel(site, self.vectors, number, used, place)


@dataclass(frozen=True)
class _FloatPanel(Panel):
    """Emitter of one panel of floats."""

    site: Site
    vectors: int
    number: Index
    used: int
    place: ExpertPlace

    def emit_tile(self, row: Index, height: int) -> None:
        """Emit chains over ascending k that begin with the bias."""
        e, lanes, depth = self.site.e, self.site.target.float_lanes, self.site["src"].shape[1]
        count, line = -(-self.used // lanes), 4 * lanes * self.vectors
        source = e.offset(self.site["src"].pointer, e.scaled(row, 4 * depth))
        weights = e.offset(self.site.constants["filter"], e.scaled(self.number, depth * line))
        start = [scalar(vec(F32, lanes), 0.0)] * count
        if "bias" in self.site.constants:
            terms = e.offset(self.site.constants["bias"], e.scaled(self.number, line))
            start = [e.load(e.offset(terms, 4 * lanes * v), vec(F32, lanes)) for v in range(count)]
        rows, columns = MatrixRows(source, 4 * depth), MatrixRows(weights, line)
        sums = add_products(e, rows, columns, depth, start * height, count)
        places, operation = self.place.dest_rows(self.site, row, height), self.site.operation
        for number, total in enumerate(sums):
            r, v = divmod(number, count)
            result = clamp_float(e, total, operation.lo, operation.hi)
            e.store_lanes(result, e.offset(places[r], 4 * lanes * v), min(lanes, self.used - lanes * v))


def _shape(instruction: Instruction, target: VectorTarget) -> tuple[int, int]:
    """Rows of a tile, a power of two, and vectors of a panel."""
    rows, columns = instruction.operand("dest").type.shape
    vectors = max(1, min(MOST_VECTORS, -(-columns // target.float_lanes)))
    most = min(rows, target.registers // 2 // MOST_VECTORS) if target.has_fma else 1
    return 1 << max(most, 1).bit_length() - 1, vectors


def _is_known(instruction: Instruction) -> bool:
    """Whether all weights are constants."""
    computed = ("dest", "src", "experts", "scratch")
    return all(b.data is not None for s, b in instruction.operands() if s.name not in computed)


@candidates_for(ExpertGemm)
def expert_products(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the kernel; none for weights that are computed."""
    return [ExpertProduct(*_shape(instruction, target))] if _is_known(instruction) else []


@candidates_for(ExpertBlockGemm)
def expert_block_products(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the kernel for rows of floats; none for weights that are computed."""
    if instruction.optional("rows") is not None:
        return []
    return [ExpertBlockProduct(*_shape(instruction, target))] if _is_known(instruction) else []
