"""Look-up of columns of a constant matrix where the kernel of a product has it packed."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, Self

from qglow.core.types import Array, ElementType
from qglow.instructions.program import Instruction
from qglow.kernels.arithmetic.half import load_widened
from qglow.kernels.emit.builder import I8, I16, I32, Index, Value
from qglow.kernels.emit.indices import chosen_index
from qglow.kernels.emit.kernel import Kernel, Site, kernel
from qglow.kernels.emit.operand import to_physical
from qglow.kernels.emit.packing import HIGHEST_BITS, WORD_BYTES, ColumnPacking
from qglow.kernels.emit.target import VectorTarget

_WORDS = {2: I16, 4: I32}


@kernel
@dataclass(frozen=True)
class GatherPacked(Kernel):
    """Gather of columns, word by word, from constants as a product of the same model has them.

    Fields are those of `ColumnPacking`. Both store the same bytes, so that memory holds them once.
    """

    name: ClassVar[str] = "gatherpacked"
    limits_live: ClassVar[bool] = True

    wide: int
    count: int
    narrow: int = 0
    bits: int = 0
    flipped: bool = False
    weights: str = ""

    @property
    def packing(self) -> ColumnPacking:
        """The fields."""
        return ColumnPacking(self.wide, self.count, self.narrow, self.bits, self.flipped, self.weights)

    @classmethod
    def reading(cls, packing: ColumnPacking) -> Self:
        """The kernel for columns in this order."""
        return cls(**{field.name: getattr(packing, field.name) for field in fields(packing)})

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """The matrix as the product has it."""
        source = instruction.operand("src")
        assert source.data is not None
        stored = to_physical(source.data, source.type, target.activation_bias)
        return {"src": self.packing.pack(stored)}

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cost of a run for each element."""
        return instruction.operand("dest").type.size * target.model.movement.transposed_element

    def emit(self, site: Site) -> None:
        """Emit a loop over indices, which threads share, and one over the words of a column."""
        e, dest = site.e, site["dest"]
        if not dest.type.size:
            return
        rows, columns = dest.shape
        size = dest.type.element.size
        each = WORD_BYTES if size == 1 else 1
        stored = each * size if not self.weights else ElementType(self.weights).size
        first, end = e.share(columns)
        (live,) = e.live_axes([columns], 1)
        with e.loop(first, e.minimum(end, live), name="index") as number:
            extent = site.instruction.operand("src").type.shape[1]
            start, pitch = self._column(site, chosen_index(site, number, extent), rows // each, stored)
            to = e.offset(dest.pointer, e.scaled(number, dest.strides[1] * size))
            with e.loop(0, rows // each, name="word") as row:
                word = self._word(site, e.offset(start, e.b.mul(e.index(row), pitch)), stored)
                place = e.offset(to, e.scaled(row, each * dest.strides[0] * size))
                self._store(site, word, place, each)

    def _word(self, site: Site, place: Value, size: int) -> Value:
        """Emit the load of one word, which is widened where the element has more bits."""
        e = site.e
        if not self.weights:
            return e.load(place, _WORDS[size])
        return e.extract(load_widened(e, place, ElementType(self.weights), 1), 0)

    def _store(self, site: Site, word: Value, place: Value, each: int) -> None:
        """Emit stores of one word, as one element or as bytes of several rows."""
        e, pitch = site.e, site["dest"].strides[0]
        if each == 1:
            e.store(word, place)
            return
        word = self._in_order(site, word)
        for byte in range(each):
            e.store(e.b.trunc(e.b.lshr(word, I32(8 * byte)), I8), e.offset(place, byte * pitch))

    def _column(self, site: Site, chosen: Value, words: int, size: int) -> tuple[Value, Value]:
        """Emit the address of a column's first word, and the bytes from one word to the next."""
        e, constant = site.e, site.constants["src"]
        place, pitch = self._panel(site, chosen, self.wide, words, size)
        if self.narrow:
            first = self.wide * self.count
            others, less = self._panel(site, e.b.sub(chosen, e.index(first)), self.narrow, words, size)
            beyond = e.b.icmp_signed(">=", chosen, e.index(first))
            place = e.b.select(beyond, e.plus(others, first * words * size), place)
            pitch = e.b.select(beyond, less, pitch)
        return e.offset(constant, place), pitch

    def _panel(self, site: Site, column: Value, width: int, words: int, size: int) -> tuple[Value, Value]:
        """Emit the offset of a column in panels of one width, and its bytes from word to word."""
        e = site.e
        number = e.b.udiv(column, e.index(width))
        lane = e.b.sub(column, e.b.mul(number, e.index(width)))
        start: Index = e.b.mul(number, e.index(words * width * size))
        return e.plus(start, e.scaled(lane, size)), e.index(width * size)

    def _in_order(self, site: Site, word: Value) -> Value:
        """Emit four bytes in the order of rows, as memory holds the matrix elsewhere."""
        e = site.e
        if self.flipped:
            word = e.b.xor(word, I32(HIGHEST_BITS))
        if not self.bits:
            return word
        found, mask = I32(0), I32((1 << self.bits) - 1)
        for ordered, stepped in self.packing.places():
            code = e.b.and_(e.b.lshr(word, I32(stepped)), mask)
            found = e.b.or_(found, e.b.shl(code, I32(ordered)))
        return found
