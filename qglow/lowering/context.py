"""State of one lowering: the program so far, and the axis order in which each value is stored.

An *order* is a tuple of logical axes: physical axis i of the buffer is axis `order[i]` of the value.
Images are (0, 2, 3, 1), NHWC. A transposition is emitted only where an operator asks for a value in an
order in which it is not stored yet, at most once for each value and order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from qglow.core.types import Array, ElementType, Shape, TensorType
from qglow.graph.graph import Graph, Node, Value
from qglow.instructions.operation import Operation
from qglow.instructions.ops.memory import AllocActivation, DeallocActivation, TensorView
from qglow.instructions.ops.movement import Transpose
from qglow.instructions.program import Buffer, BufferKind, Instruction, Live, Program, Transposed
from qglow.lowering.live import LiveAxes

Order = tuple[int, ...]
NOTHING: Mapping[Any, Any] = MappingProxyType({})
NHWC: Order = (0, 2, 3, 1)


class Lowering:
    """Builds the program of one graph. Rules call `read`, `write` and `emit`."""

    def __init__(
        self,
        graph: Graph,
        lower: Callable[[Graph, Lowering], Program],
        names: set[str] | None = None,
        live: Mapping[Value, LiveAxes] = NOTHING,
        summed: Mapping[str, str] = NOTHING,
    ) -> None:
        """lower: lowers a region of a node. names: those of the program that this one is to be inside of.

        live, summed: results of which only some places, or terms, matter, as those of `LiveResults`.
        """
        self.graph = graph
        self._lower = lower
        self._live, self._summed = live, summed
        self._live_buffers: dict[Buffer, tuple[Live, ...]] = {}
        self.program = Program(graph.name)
        self._orders: dict[Value, Order] = {}
        self._buffers: dict[tuple[Value, Order], Buffer] = {}
        self._constants: dict[str, Buffer] = {}
        self._derived: dict[tuple[Buffer, Operation], Buffer] = {}
        self.names: set[str] = set() if names is None else names
        self._output_of: dict[Value, Buffer] = {}
        self._node: Node | None = None
        for value in graph.inputs:
            buffer = self._placeholder(value)
            self._orders[value] = natural(value.type.shape)
            self._buffers[value, self._orders[value]] = buffer
        self._output_names = {value: self._reserve(value.name) for value in dict.fromkeys(graph.outputs)}

    def lower_region(self, region: Graph) -> Program:
        """Lower a region of a node to a program, whose constants have names that no others have."""
        return self._lower(region, self)

    def begin(self, node: Node) -> None:
        """Make `node` the origin of the instructions emitted from here on."""
        self._node = node

    def order(self, value: Value) -> Order:
        """The order in which a value was produced; constants are in natural order."""
        return self._orders.get(value, natural(value.type.shape))

    def read(self, value: Value | None, order: Order | None = None) -> Buffer:
        """The buffer of an operand in `order` (default: as it is stored), transposed if need be."""
        assert value is not None
        order = order or self.order(value)
        if (value, order) in self._buffers:
            return self._buffers[value, order]
        if value.data is not None:
            data = np.asarray(np.transpose(value.data, order), order="C")
            found = self.constant(_suffixed(value.name, order), data, value.type)
            found.made_of = Transposed(value.name, tuple(order))
        else:
            found = self._reordered(value, order)
        self._buffers[value, order] = found
        return found

    def write(self, value: Value, order: Order | None = None) -> Buffer:
        """The buffer into which a node's output goes, in this order (default natural)."""
        order = order or natural(value.type.shape)
        self._orders[value] = order
        if self.graph.is_output(value) and same_memory(value.type.shape, order):
            buffer = self.output_placeholder(value)
            if order != natural(value.type.shape):
                # Both orders have the same memory: the output is written in image order through a view.
                buffer = self._alias_output(value, buffer, order)
        else:
            buffer = self.allocate(value.name, permuted(value.type, order))
        self._buffers[value, order] = buffer
        self._note_live(value, order, buffer)
        return buffer

    def alias(self, value: Value, source: Buffer, order: Order, kind: TensorType) -> None:
        """Make a value a view of a dense buffer in another shape; no byte moves."""
        self._orders[value] = order
        self._buffers[value, order] = self.view(value.name, source, kind)

    def rename(self, value: Value, source: Value, order: Order) -> None:
        """Let `value` share the buffer of `source`, whose axes are then those of `order`."""
        self._orders[value] = order
        self._buffers[value, order] = self.read(source)

    def allocate(self, name: str, kind: TensorType) -> Buffer:
        """A new activation."""
        buffer = Buffer(self._reserve(name), kind, BufferKind.ACTIVATION)
        self._append(Instruction(buffer.name, AllocActivation(), (buffer,), origin=self._origin()))
        return buffer

    def view(self, name: str, source: Buffer, kind: TensorType) -> Buffer:
        """A dense buffer seen in another shape."""
        buffer = Buffer(self._reserve(name), kind, BufferKind.VIEW, base=source)
        self._append(Instruction(buffer.name, TensorView(), (buffer, source), origin=self._origin()))
        return buffer

    def constant(self, name: str, data: Array, kind: TensorType | None = None) -> Buffer:
        """A constant. The same name and data are kept once."""
        data = np.asarray(data, order="C")  # unlike ascontiguousarray, keeps a scalar without axes
        made = TensorType(ElementType.of(data.dtype), tuple(data.shape))
        if kind is not None and kind.quantization is not None and kind.quantization.axis is None:
            made = made.quantized(kind.quantization)
        found = self._constants.get(name)
        if found is not None and found.type == made and np.array_equal(np.asarray(found.data), data):
            return found
        buffer = Buffer(self._reserve(name), made, BufferKind.CONSTANT, data=data)
        self._constants[name] = buffer
        self.program.constants.append(buffer)
        return buffer

    def emit(self, operation: Operation, *buffers: Buffer | None, suffix: str = "") -> Instruction:
        """Append an instruction named after the current node, or its first buffer where there is no node."""
        origin = buffers[0].name if self._node is None and buffers[0] is not None else ""
        name = self._reserve_instruction((origin if self._node is None else self._node.name) + suffix)
        absent = (None,) * (len(operation.signature) - len(buffers))
        instruction = Instruction(name, operation, (*buffers, *absent), origin=self._origin())
        instruction.live = self._live_of(instruction)
        results = () if self._node is None else self._node.outputs
        count = next((self._summed[v.name] for v in results if v.name in self._summed), None)
        if count is not None and operation.sums_products:
            instruction.summed = self._number(count)
        self._append(instruction)
        return instruction

    def derived(self, operation: Operation, source: Buffer, kind: TensorType, suffix: str) -> Buffer:
        """Result of an operation on one buffer, computed once even if it is asked for repeatedly."""
        key = (source, operation)
        if key not in self._derived:
            self._derived[key] = self.allocate(f"{source.name}{suffix}", kind)
            self.emit(operation, self._derived[key], source, suffix=suffix)
        return self._derived[key]

    def placeholder(self, name: str, kind: TensorType) -> Buffer:
        """Add a placeholder to the program, for an input or for state."""
        buffer = Buffer(self._reserve(name), kind, BufferKind.PLACEHOLDER)
        self.program.placeholders.append(buffer)
        return buffer

    def output_placeholder(self, value: Value) -> Buffer:
        """The placeholder of a graph output."""
        if value not in self._output_of:
            name = self._output_names[value]
            self._output_of[value] = Buffer(name, value.type, BufferKind.PLACEHOLDER)
        return self._output_of[value]

    def finish(self) -> Program:
        """Declare the outputs in the graph's order and free every activation at the end."""
        state = [p for p in self.program.placeholders if p not in self._inputs()]
        outputs = [self.output_placeholder(v) for v in dict.fromkeys(self.graph.outputs)]
        self.program.placeholders = [*self._inputs(), *outputs, *state]
        self.program.constants.sort(key=lambda buffer: buffer.name)
        for buffer in self.program.activations():
            name = self._reserve(f"dealloc_{buffer.name}")
            self.program.code.append(Instruction(name, DeallocActivation(), (buffer,)))
        return self.program

    def _inputs(self) -> list[Buffer]:
        return [self._buffers[v, natural(v.type.shape)] for v in self.graph.inputs]

    def _placeholder(self, value: Value) -> Buffer:
        return self.placeholder(value.name, value.type)

    def _alias_output(self, value: Value, buffer: Buffer, order: Order) -> Buffer:
        self._buffers[value, natural(value.type.shape)] = buffer
        return self.view(f"{value.name}.nhwc", buffer, permuted(value.type, order))

    def _reordered(self, value: Value, order: Order) -> Buffer:
        source = self.read(value)
        lies = self.order(value)
        kind = permuted(value.type, order)
        perm = tuple(lies.index(axis) for axis in order)
        name = _suffixed(value.name, order)
        if same_memory(source.type.shape, perm):
            return self.view(name, source, kind)
        if self.graph.is_output(value) and order == natural(value.type.shape):
            target = self.output_placeholder(value)
        else:
            target = self.allocate(name, kind)
        self._note_live(value, order, target)
        self.emit(Transpose(perm=perm), target, source, suffix=".transpose")
        return target

    def _note_live(self, value: Value, order: Order, buffer: Buffer) -> None:
        """Note which elements of a buffer matter, if its value is one of which only some do."""
        if value not in self._live or not buffer.type.size:
            return
        shape, rules = buffer.type.shape, []
        for axis, count in self._live[value]:
            place = order.index(axis)
            rules.append(Live(self._number(count), shape[place], math.prod(shape[place + 1 :])))
        self._live_buffers[buffer.root] = tuple(sorted(rules, key=lambda rule: -rule.period))

    def _number(self, name: str) -> Buffer:
        """The input that has a number of live places."""
        return next(buffer for buffer in self.program.placeholders if buffer.name == name)

    def _live_of(self, instruction: Instruction) -> tuple[Live, ...]:
        """Elements of an instruction's results that matter; nothing where these are all, or not alike."""
        found = {self.live_of(buffer) for buffer in instruction.writes()}
        return found.pop() if len(found) == 1 else ()

    def live_of(self, buffer: Buffer) -> tuple[Live, ...]:
        """Elements of a buffer that matter; nothing where these are all."""
        return self._live_buffers.get(buffer.root, ()) if _is_whole(buffer) else ()

    def _append(self, instruction: Instruction) -> None:
        self.program.code.append(instruction)

    def _origin(self) -> tuple[str, ...]:
        return () if self._node is None else (self._node.name,)

    def _reserve_instruction(self, wanted: str) -> str:
        # The listing shows instructions and buffers in one name space, as Glow's does.
        return self._reserve(wanted) if wanted in self.names else self._take(wanted)

    def _take(self, name: str) -> str:
        self.names.add(name)
        return name

    def _reserve(self, wanted: str) -> str:
        name, count = wanted, 0
        while name in self.names:
            count += 1
            name = f"{wanted}__{count}"
        return self._take(name)


def _is_whole(buffer: Buffer) -> bool:
    """Whether a buffer has all elements of its memory, in their order."""
    return buffer.is_contiguous and buffer.type.size == buffer.root.type.size


def natural(shape: Sequence[int]) -> Order:
    """The order in which the model numbers the axes: 0, 1, 2 and so on."""
    return tuple(range(len(shape)))


def permuted(kind: TensorType, order: Order) -> TensorType:
    """The type of a value's buffer in this order."""
    return kind.with_shape(tuple(kind.shape[axis] for axis in order))


def same_memory(shape: Shape, perm: Order) -> bool:
    """Whether transposing a dense tensor by `perm` leaves its bytes in place."""
    moved = [axis for axis in perm if shape[axis] != 1]
    return moved == sorted(moved)


def _suffixed(name: str, order: Order) -> str:
    if order == tuple(range(len(order))):
        return name
    return f"{name}.nhwc" if order == NHWC else f"{name}.order" + "".join(map(str, order))
