"""Attention: a few rows of queries at a time, whose scores stay in near caches.

Keys lie as rows. For many rows of queries, and where they are int8, they are transposed once for each stack,
so that vectors run over keys; for few, squares of them are transposed in registers on their way into the
products. Scores of a block of rows go to working memory, become shares there, and are multiplied with the
values. All of it has the order of single operations (rule 13 of the numeric contract): chains over ascending
places, a maximum, and sums in 16 parts; sums of int8 are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from qglow.core.types import Array
from qglow.instructions.operation import Operation
from qglow.instructions.ops.attention import Attention
from qglow.instructions.program import Instruction
from qglow.kernels.attention.block import QueryBlock
from qglow.kernels.attention.byte_scores import ByteScores, score_constants
from qglow.kernels.attention.extents import OPERANDS, Extents
from qglow.kernels.attention.stack import KeyStack, live_count
from qglow.kernels.emit.builder import Index, Value
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.operand import Memory
from qglow.kernels.emit.sweep import nested_widths, outer_loops
from qglow.kernels.emit.target import CodeSize, VectorTarget
from qglow.kernels.movement.transpose import SQUARE
from qglow.kernels.products.matmul import direct_block, pieces
from qglow.kernels.products.packed_product import is_centred

FEW_ROWS = 2
"""Up to this many rows of queries read keys that are transposed in registers, once for each block of rows."""
TILES, SCORES_BYTES = 4, 64 * 1024
"""Most tiles of a block, and most bytes of its scores where there are several."""
ROWS = ("dest", "queries", "addend", "condition")
"""Operands with rows for queries."""


@kernel
@dataclass(frozen=True)
class BlockedAttention(Kernel):
    """Attention by tiles of `rows` rows of queries and `vectors` vectors of keys or of values.

    tiles: of a block, whose scores are in working memory together.
    """

    name: ClassVar[str] = "blockedattention"
    limits_live: ClassVar[bool] = True

    rows: int = 4
    vectors: int = 2
    tiles: int = 1

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """Arrays that sums of int8 queries need."""
        return score_constants(instruction, target) if Extents.of(instruction).is_int8 else {}

    def reads_parameters(self, instruction: Instruction, target: VectorTarget) -> bool:
        """Scales and zero points are read, so that layers that differ in nothing else share code."""
        return True

    def decided(self, operation: Operation, memories: Mapping[str, Memory]) -> tuple[object, ...]:
        """Whether int8 keys have a zero point other than 0, for which rows of queries are summed up."""
        return (memories["keys"].is_float or is_centred(memories["keys"].type),)

    def scratch_bytes(self, instruction: Instruction) -> int:
        """Bytes of transposed keys and of a block of scores, for each part that threads may have."""
        extents = Extents.of(instruction)
        return max(extents.outer, default=1) * extents.room(self.rows * self.tiles)

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cycles of both products and of shares, and of transposing the keys."""
        extents = Extents.of(instruction)
        stacks, scores = prod(extents.outer), extents.rows * extents.shared * extents.keys
        products = scores * (extents.words + extents.width) / target.model.products_a_cycle
        moved = extents.keys * extents.words * target.model.movement.transposed_row / SQUARE
        shares = scores * target.model.loops.softmax_vector
        return stacks * ((products + shares) / target.float_lanes + moved)

    def emit(self, site: Site) -> None:
        """Emit loops over stacks of keys, the longest of which threads share."""
        e, extents = site.e, Extents.of(site.instruction)
        if not site["dest"].type.size:
            return
        operands = [site[name] for name in OPERANDS if name in site.operands]
        steps = [extents.steps(memory) for memory in operands]
        count = live_count(e, site, extents.keys)
        outer = tuple(zip(extents.outer, zip(*(s[:-1] for s in steps), strict=True), strict=True))
        assert site.scratch is not None
        pointers = [memory.pointer for memory in operands]
        names = [name for name in OPERANDS if name in site.operands]
        # All stacks of a thread use the working memory of its first one, which stays in near caches.
        begin, _ = e.share(max(extents.outer, default=1))
        room = e.scaled(begin, extents.room(self.rows * self.tiles))
        working = e.offset(site.scratch, room)
        widths = nested_widths(outer, site["dest"].type.size // prod(extents.outer))
        with outer_loops(e, pointers, outer, shared=True, widths=widths) as moved:
            places = {**dict(zip(names, moved, strict=True)), "scratch": working}
            heads = {name: own[-1] for name, own in zip(names, steps, strict=True)}
            self._emit_stack(KeyStack(site, self.vectors, extents, count, places), heads)

    def _emit_stack(self, stack: KeyStack, heads: dict[str, int]) -> None:
        """Emit all queries that read one stack of keys.

        heads: bytes from an operand's stack to the next one that shares the keys.
        """
        e, extents, places = stack.e, stack.extents, stack.places
        if extents.rows == 1:  # the row of every stack: they are the rows of one block
            if not _squares(stack, extents.shared):
                _transpose_keys(stack)
            self._emit_rows(stack, places, heads, extents.shared)
            return
        steps = {name: _row_step(stack.site, name) for name in places if name in ROWS}
        if not _squares(stack, extents.rows):
            _transpose_keys(stack)
        with e.loop(0, extents.shared, name="shared") as head:
            moved = {name: e.offset(places[name], e.scaled(head, heads[name])) for name in steps}
            self._emit_rows(stack, moved, steps, extents.rows)

    def _emit_rows(self, stack: KeyStack, places: dict[str, Value], steps: dict[str, int], rows: int) -> None:
        """Emit blocks of rows, which lie `steps` bytes apart in the operands."""
        e, width = stack.e, stack.extents.width
        for start, stop, height in pieces(rows, self.rows):
            whole = (stop - start) // height
            count: Index = whole
            if rows == stack.extents.rows:
                count = e.live_pieces(whole, height * width, rows * width, start * width)
            most = min(self.tiles, whole)
            with e.loop(0, count, most, "blocks") as first:
                row = e.plus(e.scaled(first, height), start)
                moved = {
                    name: e.offset(places[name], e.scaled(row, steps[name]))
                    for name in places
                    if name in ROWS
                }
                known = most == 1 or (isinstance(count, int) and count % most == 0)
                tiles = most if known else e.minimum(e.b.sub(e.index(count), e.index(first)), most)
                block = QueryBlock(stack, moved, steps, height, tiles)
                if _squares(stack, rows):
                    block.tile(0).score_squares()
                else:
                    block.score_vectors()
                block.share()
                block.weigh()


def _squares(stack: KeyStack, rows: int) -> bool:
    """Whether so many rows of queries transpose keys in registers. Sums of int8 keys serve all rows."""
    return rows <= FEW_ROWS and not stack.extents.is_int8


def _transpose_keys(stack: KeyStack) -> None:
    """Emit what all rows share: the transposed keys, and the terms of int8 ones."""
    stack.transpose_keys()
    if stack.extents.is_int8:
        ByteScores(stack).sum_keys()


def _row_step(site: Site, name: str) -> int:
    """Bytes between rows of a stack of an operand."""
    memory = site[name]
    return 0 if memory.shape[-2] == 1 else memory.shape[-1] * memory.element_bytes


@candidates_for(Attention)
def blocked_attention(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the kernel with tiles that registers hold, in blocks whose scores near caches hold."""
    extents = Extents.of(instruction)
    rows = extents.shared if extents.rows == 1 else extents.rows
    height, vectors = direct_block(target)
    if height < rows <= target.registers // 4:  # two vectors of more rows: nothing is read twice
        height, vectors = rows, 2
    if target.size is not CodeSize.FAST:
        return [BlockedAttention(height, vectors)]
    tiles = min(TILES, SCORES_BYTES // (4 * extents.line * height), rows // height)
    return [BlockedAttention(height, vectors, max(1, tiles))]
