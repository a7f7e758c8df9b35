"""The low-level program: buffers and the instructions that read and write them.

Buffers of images are NHWC. A program is a straight line of instructions over constants
(weights), placeholders (the model's inputs and outputs) and activations, which live between
an `allocactivation` and a `deallocactivation` in one arena that the memory plan lays out.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from qglow.core.types import Array, Shape, TensorType
from qglow.instructions.operation import Access, Operand, Operation

Padding = tuple[int, int, int, int]
NO_PADDING: Padding = (0, 0, 0, 0)


class BufferKind(enum.Enum):
    """Storage class of a buffer. The value is its word in the listing."""

    CONSTANT = "const"
    PLACEHOLDER = "mutable"
    ACTIVATION = "activation"
    VIEW = "view"


@dataclass(frozen=True)
class Transposed:
    """A constant of the graph, by its name, with its axes in this order."""

    name: str
    axes: tuple[int, ...]


_GEOMETRY = frozenset(("type", "padding", "base", "offsets"))
"""Attributes of a buffer that its own layout, and those of views of it, depend on."""


@dataclass(eq=False)
class Buffer:
    """A typed piece of memory.

    `padding` (top, left, bottom, right) surrounds axes 1 and 2 of a four-dimensional buffer with elements
    that hold the zero point (0.0 for floats); `type.shape` never counts it. A view has a `base`, and
    `offsets` (one for each axis of the base) at which it starts there; a view without offsets is a
    reshape of the whole contiguous base. made_of: what a constant holds, where that is known to be a constant
    of the graph.
    """

    name: str
    type: TensorType
    kind: BufferKind
    data: Array | None = None
    padding: Padding = NO_PADDING
    base: Buffer | None = None
    offsets: Shape = ()
    arena_offset: int | None = None
    made_of: Transposed | None = None
    _root: tuple[int, Buffer] | None = field(default=None, init=False, repr=False)
    _layout: tuple[int, Layout] | None = field(default=None, init=False, repr=False)
    """The last root or layout computed, and the number of the last edit before that."""

    _edit: ClassVar[int] = 0
    _edits: ClassVar[Iterator[int]] = itertools.count(1)

    def __setattr__(self, name: str, value: object) -> None:
        if name in _GEOMETRY and name in self.__dict__:
            Buffer._edit = next(Buffer._edits)
        object.__setattr__(self, name, value)

    @property
    def root(self) -> Buffer:
        """The buffer that owns the memory: itself unless it is a view. Views may be many deep."""
        if self.base is None:
            return self
        edit, root = Buffer._edit, self
        views: list[Buffer] = []
        while (base := root.base) is not None:
            if root._root is not None and root._root[0] == edit:
                root = root._root[1]
            else:
                views.append(root)
                root = base
        for view in views:
            view._root = (edit, root)
        return root

    @property
    def layout(self) -> Layout:
        """Layout of the elements, relative to the first byte of `root`."""
        edit, buffer = Buffer._edit, self
        unknown: list[Buffer] = []
        while buffer._layout is None or buffer._layout[0] != edit:
            unknown.append(buffer)
            if buffer.base is None:
                break
            buffer = buffer.base
        for one in reversed(unknown):
            one._layout = (edit, one._layout_in(None if one.base is None else one.base._layout))
        assert self._layout is not None
        return self._layout[1]

    def _layout_in(self, base: tuple[int, Layout] | None) -> Layout:
        if base is None:
            return Layout.dense(self.type.shape, self.padding)
        outer = base[1]
        if not self.offsets:
            return Layout(Layout.dense(self.type.shape).strides, outer.offset, outer.span)
        start = outer.offset + sum(o * s for o, s in zip(self.offsets, outer.strides, strict=True))
        return Layout(outer.strides, start, outer.span)

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in one run without gaps, in row-major order."""
        if self.base is None and self.padding == NO_PADDING:
            return True
        dense = Layout.dense(self.type.shape).strides
        pairs = zip(self.type.shape, self.layout.strides, dense, strict=True)
        return all(size == 1 or actual == wanted for size, actual, wanted in pairs)

    @property
    def byte_size(self) -> int:
        """Bytes that the buffer takes, padding included; of a view, bytes of its elements."""
        if self.base is not None:
            return self.type.byte_size
        return self.layout.span * self.type.element.size

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


@dataclass(frozen=True, slots=True)
class Layout:
    """Strides and start of a buffer in elements; `span` is the elements of the root's memory."""

    strides: tuple[int, ...]
    offset: int
    span: int

    @staticmethod
    def dense(shape: Shape, padding: Padding = NO_PADDING) -> Layout:
        """Row-major layout; `padding` around axes 1 and 2 of a four-dimensional shape."""
        outer = list(shape)
        top, left, bottom, right = padding
        if padding != NO_PADDING:
            if len(shape) != 4:
                raise ValueError("only four-dimensional buffers have padding")
            outer[1] += top + bottom
            outer[2] += left + right
        strides = [1] * len(outer)
        for axis in range(len(outer) - 2, -1, -1):
            strides[axis] = strides[axis + 1] * outer[axis + 1]
        span = strides[0] * outer[0] if outer else 1
        offset = top * strides[1] + left * strides[2] if padding != NO_PADDING else 0
        return Layout(tuple(strides), offset, span)


@dataclass(frozen=True)
class Live:
    """Elements of a first result that matter: those whose place along one axis is below a number.

    Of other results those matter that belong to them, such as the scales of live rows.

    count: placeholder with that number, int64 [1]. extent: places of the axis. inner: elements of a place.
    Element i of a dense result is live where `i // inner % extent` is below the number. Others may keep
    whatever was in memory. Where there are several such rules, elements have to be live by each.
    """

    count: Buffer
    extent: int
    inner: int

    @property
    def period(self) -> int:
        """Elements after which places count from 0 again."""
        return self.extent * self.inner


@dataclass(eq=False)
class Instruction:
    """An operation applied to buffers, in the order of `operation.signature`.

    A missing optional operand is None; missing ones at the end may be left out. `kernel` is
    the selected kernel in words, empty before selection. `origin` names the graph nodes that
    it came from. Adjacent instructions with the same `stack` number may share one loop. `live` says which
    elements of its results matter, all where it is empty. summed: placeholder, int64 [1], with the number of
    the first terms of each sum of products that matter; others have a factor of zero and one that is finite.
    """

    name: str
    operation: Operation
    buffers: tuple[Buffer | None, ...]
    kernel: str = ""
    origin: tuple[str, ...] = ()
    stack: int | None = None
    live: tuple[Live, ...] = ()
    summed: Buffer | None = None
    _sound: tuple[object, ...] = field(default=(), init=False, repr=False)
    """Operation and types when they were last found to fit, so that they need not be checked again."""

    def __post_init__(self) -> None:
        missing = self.operation.signature[len(self.buffers) :]
        if all(spec.optional for spec in missing):
            self.buffers = (*self.buffers, *(None for _ in missing))

    def operand(self, name: str) -> Buffer:
        """The buffer of a present operand. Raises KeyError for one that is absent."""
        buffer = self.optional(name)
        if buffer is None:
            raise KeyError(f"{self.name} has no operand {name}")
        return buffer

    def optional(self, name: str) -> Buffer | None:
        """The buffer of an operand, None if it is absent."""
        for slot, spec in enumerate(self.operation.signature):
            if spec.name == name:
                return self.buffers[slot]
        raise KeyError(f"{self.operation.opcode} declares no operand {name}")

    @property
    def types(self) -> dict[str, TensorType]:
        """Types of the present operands by name, as the operation's methods take them."""
        return {spec.name: buffer.type for spec, buffer in self.operands()}

    def verify_types(self) -> None:
        """Raise TypeErrorInOperation where the operands' types do not fit the operation."""
        found = (self.operation, *[None if buffer is None else buffer.type for buffer in self.buffers])
        if found != self._sound:
            self.operation.verify(self.types)
            self._sound = found

    def operands(self) -> list[tuple[Operand, Buffer]]:
        """The present operands with their declarations."""
        pairs = zip(self.operation.signature, self.buffers, strict=True)
        return [(spec, buffer) for spec, buffer in pairs if buffer is not None]

    def accesses(self) -> Iterator[tuple[Buffer, Access]]:
        """The present buffers, each with the instruction's access to it."""
        for spec, buffer in self.operands():
            yield buffer, spec.access

    def reads(self) -> list[Buffer]:
        """Buffers whose earlier contents matter."""
        return [b for slot in self.operation.read_slots if (b := self.buffers[slot]) is not None]

    def writes(self) -> list[Buffer]:
        """Buffers that are written."""
        return [b for slot in self.operation.written_slots if (b := self.buffers[slot]) is not None]

    def __repr__(self) -> str:
        return f"%{self.name} = {self.operation.opcode}"


@dataclass(eq=False)
class Program:
    """A function: constants, placeholders in the model's order, and the code.

    Placeholders that no instruction writes are inputs; those that an operation with
    `updates_state` writes are state, kept from call to call; the others are
    outputs. `arena_size` is the bytes that the memory plan found necessary.
    """

    name: str
    constants: list[Buffer] = field(default_factory=list)
    placeholders: list[Buffer] = field(default_factory=list)
    code: list[Instruction] = field(default_factory=list)
    arena_size: int | None = None

    def regions(self) -> list[Program]:
        """The programs that its instructions run, in their order; not those inside of these."""
        return [body for instruction in self.code for body in instruction.operation.bodies]

    def all_constants(self) -> list[Buffer]:
        """Its constants, and those of the programs inside of it. Names are unique."""
        return [*self.constants, *(buffer for body in self.regions() for buffer in body.all_constants())]

    def activations(self) -> list[Buffer]:
        """Activation buffers in order of first appearance."""
        found: dict[Buffer, None] = {}
        for instruction in self.code:
            for buffer, _ in instruction.accesses():
                if buffer.root.kind is BufferKind.ACTIVATION:
                    found.setdefault(buffer.root)
        return list(found)

    def inputs(self) -> list[Buffer]:
        """Placeholders that are only read."""
        written = {b.root for i in self.code for b in i.writes()}
        return [b for b in self.placeholders if b not in written]

    def state(self) -> list[Buffer]:
        """Placeholders that an operation which updates state writes, in whole or in part."""
        updated: set[Buffer] = set()
        for instruction in self.code:
            for slot in instruction.operation.state_slots:
                buffer = instruction.buffers[slot]
                if buffer is not None:
                    updated.add(buffer.root)
        return [b for b in self.placeholders if b in updated]

    def outputs(self) -> list[Buffer]:
        """Placeholders that are results."""
        inputs, state = set(self.inputs()), set(self.state())
        return [b for b in self.placeholders if b not in inputs and b not in state]

    def buffer(self, name: str) -> Buffer:
        """The buffer of this name. Raises KeyError."""
        for buffer in self.all_buffers():
            if buffer.name == name:
                return buffer
        raise KeyError(name)

    def all_buffers(self) -> list[Buffer]:
        """Every buffer once: constants, placeholders, then activations and views in order."""
        found: dict[Buffer, None] = dict.fromkeys([*self.constants, *self.placeholders])
        for instruction in self.code:
            for buffer, _ in instruction.accesses():
                found.setdefault(buffer)
        return list(found)
