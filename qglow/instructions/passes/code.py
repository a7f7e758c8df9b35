"""The code of a program while a pass changes it, with an index of memory accesses that edits keep valid.

`Usage` has the same facts, but needs a walk over all code after each change.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from qglow.core.ordered import Ordered
from qglow.instructions.operation import Access, Operand, Operation
from qglow.instructions.ops.memory import AllocActivation, DeallocActivation, TensorView
from qglow.instructions.program import Buffer, BufferKind, Instruction, Program


@dataclass(frozen=True, slots=True)
class Touch:
    """One operand of one instruction that touches memory of a root buffer."""

    instruction: Instruction
    slot: int

    @property
    def operand(self) -> Operand:
        """Declaration of the operand."""
        return self.instruction.operation.signature[self.slot]

    @property
    def buffer(self) -> Buffer:
        """The operand's buffer as it is now."""
        buffer = self.instruction.buffers[self.slot]
        assert buffer is not None
        return buffer

    @property
    def writes(self) -> bool:
        """Whether contents change."""
        return self.operand.access is not Access.IN


@dataclass(slots=True)
class _Memory:
    """Touches of the memory of one root buffer, and the instructions that declare views of it, in order."""

    touches: list[Touch] = field(default_factory=list)
    views: list[Touch] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.touches) + len(self.views)


class Code:
    """The code of one program. Nothing else may change it until `finish` has put it back.

    All questions about memory are about root buffers: touches through views count for the root. Methods
    carry out edits without checking that they are allowed.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self.state = frozenset(program.state())
        self.order: Ordered[Instruction] = Ordered(program.code)
        self._memory: dict[Buffer, _Memory] = {}
        self._declared: dict[Buffer, Instruction] = {}
        self._deallocated: dict[Buffer, Instruction] = {}
        self._names: set[str] | None = None
        for instruction in program.code:
            self._note(instruction)
            for touches, touch in self._lists(instruction):
                touches.append(touch)

    def finish(self) -> None:
        """Write the code back to the program."""
        self._program.code[:] = self.order

    def unique_name(self, wanted: str) -> str:
        """`wanted`, with a number if a buffer or instruction has that name; taken from now on."""
        if self._names is None:
            self._names = {b.name for b in self._program.all_buffers()} | {i.name for i in self.order}
        name, count = wanted, 0
        while name in self._names:
            count += 1
            name = f"{wanted}__{count}"
        self._names.add(name)
        return name

    def precedes(self, one: Instruction, other: Instruction) -> bool:
        """Whether an instruction comes before another one."""
        return self.order.place(one) < self.order.place(other)

    def touches(self, buffer: Buffer) -> Sequence[Touch]:
        """Every touch of the buffer's root, in order."""
        memory = self._memory.get(buffer.root)
        return () if memory is None else memory.touches

    def touches_within(self, buffer: Buffer, first: Instruction, last: Instruction) -> Sequence[Touch]:
        """Touches of the buffer's root from one instruction to another one, both included."""
        found = self.touches(buffer)
        low = bisect_left(found, (self.order.place(first), -1), key=self._key)
        return found[low : bisect_left(found, (self.order.place(last) + 1, -1), key=self._key)]

    def first(self, buffer: Buffer) -> Instruction | None:
        """The first instruction that touches the root; None if none does."""
        found = self.touches(buffer)
        return found[0].instruction if found else None

    def last(self, buffer: Buffer) -> Instruction | None:
        """The last instruction that touches the root; None if none does."""
        found = self.touches(buffer)
        return found[-1].instruction if found else None

    def last_write_before(self, buffer: Buffer, instruction: Instruction) -> Instruction | None:
        """The last instruction before this one that changes the root's memory; None if none does."""
        found = self.touches(buffer)
        end = bisect_left(found, (self.order.place(instruction), -1), key=self._key)
        return next((found[i].instruction for i in range(end - 1, -1, -1) if found[i].writes), None)

    def views(self, buffer: Buffer) -> list[Buffer]:
        """Views of the buffer's root, in order of declaration."""
        memory = self._memory.get(buffer.root)
        return [] if memory is None else [touch.buffer for touch in memory.views]

    def declaration(self, buffer: Buffer) -> Instruction | None:
        """The allocation or tensorview that makes this very buffer; None for constants and placeholders."""
        return self._declared.get(buffer)

    def deallocation(self, buffer: Buffer) -> Instruction | None:
        """The deallocation of this very buffer."""
        return self._deallocated.get(buffer)

    def insert_before(self, anchor: Instruction | None, instruction: Instruction) -> None:
        """Insert an instruction before `anchor`, or at the end if that is None."""
        self.order.insert_before(anchor, instruction)
        self._note(instruction)
        for touches, touch in self._lists(instruction):
            insort(touches, touch, key=self._key)

    def remove(self, instruction: Instruction) -> None:
        """Remove an instruction."""
        for touches, touch in self._lists(instruction):
            del touches[bisect_left(touches, self._key(touch), key=self._key)]
        self.order.remove(instruction)
        if isinstance(instruction.operation, DeallocActivation):
            del self._deallocated[instruction.operand("src")]
        elif isinstance(instruction.operation, AllocActivation | TensorView):
            del self._declared[instruction.operand("dest")]

    def move_before(self, anchor: Instruction | None, instruction: Instruction) -> None:
        """Move an instruction before `anchor`, or to the end if that is None."""
        self.remove(instruction)
        self.insert_before(anchor, instruction)

    def change(
        self, instruction: Instruction, operation: Operation, buffers: tuple[Buffer | None, ...]
    ) -> None:
        """Replace operation and buffers of an instruction that is no declaration."""
        after = self.order.next(instruction)
        self.remove(instruction)
        instruction.operation, instruction.buffers = operation, buffers
        self.insert_before(after, instruction)

    def replace_buffer(self, old: Buffer, new: Buffer) -> Buffer:
        """Merge activation `old` with `new`, of its type; returns the object that stands for both.

        The activation loses its declaration and deallocation. To rename fewer operands, the object that
        is touched more often stays: that may be `old`, which then takes the name and the place of `new`.
        """
        for instruction in (self.declaration(old), self.deallocation(old)):
            if instruction is not None:
                self.remove(instruction)
        ours, theirs = self._memory.get(old, _Memory()), self._memory.get(new, _Memory())
        plain = new.base is None and new.kind is BufferKind.ACTIVATION
        if plain and theirs.size < ours.size:
            self._take_place(old, new, theirs)
        else:
            _rename(ours, old, new)
        kept = old if plain and theirs.size < ours.size else new
        self._join(kept.root, [self._memory.pop(b, _Memory()) for b in (old, new.root)])
        return kept

    def turn_into_view(self, buffer: Buffer, base: Buffer, offsets: tuple[int, ...]) -> Instruction:
        """Make an activation a view; returns its allocation, which becomes a tensorview at the same place."""
        ends = self.deallocation(buffer)
        if ends is not None:
            self.remove(ends)
        allocation = self._declared[buffer]
        memory = self._memory.pop(buffer, _Memory())
        buffer.kind, buffer.base, buffer.offsets = BufferKind.VIEW, base, offsets
        allocation.operation, allocation.buffers = TensorView(offsets), (buffer, base)
        self._join(base.root, [memory, self._memory.pop(base.root, _Memory())])
        for touches, touch in self._lists(allocation):
            insort(touches, touch, key=self._key)
        return allocation

    def declare_before(self, buffer: Buffer, anchor: Instruction) -> None:
        """Move the declarations of `buffer` and its bases before an instruction, where they come after it."""
        chain: list[Instruction] = []
        current: Buffer | None = buffer
        while current is not None:
            found = self.declaration(current)
            if found is not None and not self.precedes(found, anchor):
                chain.append(found)
            current = current.base
        for instruction in reversed(chain):
            self.move_before(anchor, instruction)

    def deallocate_after_last_use(self, buffer: Buffer) -> None:
        """Move the deallocation of the buffer's root behind its last use, if it is earlier."""
        root = buffer.root
        found, memory = self.deallocation(root), self._memory.get(root)
        if found is None or memory is None:
            return
        ends = [touches[-1] for touches in (memory.touches, memory.views) if touches]
        last = max(ends, key=self._key).instruction if ends else None
        if last is not None and self.precedes(found, last):
            self.move_before(self.order.next(last), found)

    def _note(self, instruction: Instruction) -> None:
        if instruction.operation.touches_memory:
            return
        if isinstance(instruction.operation, DeallocActivation):
            self._deallocated[instruction.operand("src")] = instruction
        elif isinstance(instruction.operation, AllocActivation | TensorView):
            self._declared[instruction.operand("dest")] = instruction

    def _lists(self, instruction: Instruction) -> list[tuple[list[Touch], Touch]]:
        """The lists that hold an instruction's touches, each with the touch."""
        if instruction.operation.touches_memory:
            return [
                (self._of(buffer.root).touches, Touch(instruction, slot))
                for slot, buffer in enumerate(instruction.buffers)
                if buffer is not None
            ]
        if isinstance(instruction.operation, TensorView):
            return [(self._of(instruction.operand("dest").root).views, Touch(instruction, 0))]
        return []

    def _of(self, root: Buffer) -> _Memory:
        memory = self._memory.get(root)
        if memory is None:
            memory = self._memory[root] = _Memory()
        return memory

    def _key(self, touch: Touch) -> tuple[int, int]:
        return self.order.place(touch.instruction), touch.slot

    def _take_place(self, old: Buffer, new: Buffer, theirs: _Memory) -> None:
        """Give `old` the name, kind, padding and uses of `new`, an allocated buffer of its type."""
        old.name, old.kind, old.padding = new.name, new.kind, new.padding
        _rename(theirs, new, old)
        for made in (self._declared, self._deallocated):
            found = made.pop(new, None)
            if found is not None:
                found.buffers = (old, *found.buffers[1:])
                made[old] = found

    def _join(self, root: Buffer, parts: list[_Memory]) -> None:
        joined = _Memory()
        joined.touches = self._joined(*[part.touches for part in parts])
        joined.views = self._joined(*[part.views for part in parts])
        self._memory[root] = joined

    def _joined(self, one: list[Touch], other: list[Touch]) -> list[Touch]:
        """Both lists merged in order. The longer list is extended in place."""
        if len(one) < len(other):
            one, other = other, one
        if not other:
            return one
        if self._key(one[-1]) < self._key(other[0]):
            one.extend(other)
        else:
            for touch in other:
                one.insert(bisect_right(one, self._key(touch), key=self._key), touch)
        return one


def _rename(memory: _Memory, old: Buffer, new: Buffer) -> None:
    """Replace a buffer by another in the instructions that touch it, and as the base of its views."""
    for touch in (*memory.touches, *memory.views):
        instruction = touch.instruction
        instruction.buffers = tuple(new if b is old else b for b in instruction.buffers)
    for touch in memory.views:
        if touch.buffer.base is old:
            touch.buffer.base = new
