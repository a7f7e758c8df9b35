"""Sizes of an attention, and where its operands have their stacks."""

from __future__ import annotations

from dataclasses import dataclass

from qglow.instructions.ops.attention import Attention
from qglow.instructions.program import Instruction
from qglow.kernels.emit.operand import Memory, dense_strides
from qglow.kernels.reduction.softmax import LANES

ALIGNMENT = 64
OPERANDS = ("dest", "queries", "keys", "values", "addend", "condition")
"""Operands that lie in stacks."""


@dataclass(frozen=True)
class Extents:
    """Sizes of an instruction. outer: stacks of keys. shared: stacks of queries for each of them.

    rows, keys: of queries and of keys in a stack. depth, width: columns of queries and of values.
    is_int8: whether queries and keys are, four elements to a word.
    """

    outer: tuple[int, ...]
    shared: int
    rows: int
    keys: int
    depth: int
    width: int
    is_int8: bool

    @staticmethod
    def of(instruction: Instruction) -> Extents:
        """The sizes of an instruction."""
        operation = instruction.operation
        assert isinstance(operation, Attention)
        queries, keys, values = (instruction.operand(n).type.shape for n in ("queries", "keys", "values"))
        is_int8 = not instruction.operand("keys").type.is_float
        return Extents(keys[:-2], operation.shared, queries[-2], keys[-2], keys[-1], values[-1], is_int8)

    @property
    def line(self) -> int:
        """Floats from one row of scores, or of transposed keys, to the next."""
        return -(-self.keys // LANES) * LANES

    @property
    def key_bytes(self) -> int:
        """Bytes from one key to the next."""
        return self.depth if self.is_int8 else 4 * self.depth

    @property
    def words(self) -> int:
        """Words of four bytes of a key, the last one perhaps in part."""
        return -(-self.key_bytes // 4)

    @property
    def kept_bytes(self) -> int:
        """Bytes of transposed keys, and of one term for each int8 key."""
        return 4 * self.line * (self.words + (1 if self.is_int8 else 0))

    def room(self, rows: int) -> int:
        """Bytes of working memory of a stack of keys, for blocks of `rows` rows."""
        return -(-(self.kept_bytes + 4 * self.line * rows) // ALIGNMENT) * ALIGNMENT

    def steps(self, memory: Memory) -> tuple[int, ...]:
        """Bytes between stacks of an operand along the outer axes, and between those that share keys."""
        shape, size = memory.shape, memory.element_bytes
        own = [0 if n == 1 else size * s for n, s in zip(shape, dense_strides(shape), strict=True)][:-2]
        if shape[:-2] == self.outer and self.shared > 1:
            return (*own, 0)  # keys and values: all queries of a stack read the same
        return (*own[:-1], own[-1] * self.shared, own[-1])
