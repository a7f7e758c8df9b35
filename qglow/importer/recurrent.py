"""Import of recurrent operators: https://onnx.ai/onnx/operators/ GRU, LSTM, RNN

Every direction is one product with the input of all steps, and one Recurrence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qglow.core.types import ElementType
from qglow.graph.graph import Value
from qglow.graph.ops.elementwise import Add
from qglow.graph.ops.linear import MatMul
from qglow.graph.ops.logic import Compare
from qglow.graph.ops.movement import Slice
from qglow.graph.ops.recurrence import Recurrence
from qglow.graph.ops.selection import Where
from qglow.graph.ops.shape import Cast, Identity, Reshape, Transpose
from qglow.importer.node import ImportNode, ImportRule
from qglow.importer.shape import joined
from qglow.numerics.scalar.cells import ACTIVATIONS

DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""For every direction whether it begins with the last step."""
DEFAULTS = {"lstm": ("Sigmoid", "Tanh", "Tanh"), "gru": ("Sigmoid", "Tanh"), "rnn": ("Tanh",)}


@dataclass(frozen=True)
class ImportedLayer:
    """A recurrent operator. batch_first: of what the model has the batch as the first axis (layout 1)."""

    node: ImportNode
    cell: str
    steps: int
    batch: int
    width: int
    batch_first: bool

    @property
    def columns(self) -> int:
        """Sums of all gates."""
        return Recurrence.GATES[self.cell] * self.width


@dataclass(frozen=True)
class LayerDirection:
    """One direction of a layer: its operator, and its number."""

    layer: ImportedLayer
    operator: Recurrence
    number: int

    @property
    def name(self) -> str:
        """The direction in names of parts."""
        return ("forth", "back")[self.number]

    def part(self, index: int) -> Value | None:
        """Return what an operand holds for this direction, without the axis of directions."""
        node = self.layer.node
        value = node.plain(index) if node.has_input(index) else None
        if value is None:
            return None
        axis = 1 if self.layer.batch_first and index in (5, 6) else 0
        shape, number = value.type.shape, self.number
        node.require(
            axis < len(shape) and number < shape[axis], f"input {index} is {value.type}; it lacks a direction"
        )
        part = f"{self.name}_input{index}"
        if shape[axis] > 1:
            starts, ends = [0] * len(shape), list(shape)
            starts[axis], ends[axis] = number, number + 1
            value = self.cut(value, starts, ends, f"{part}_alone")
        return node.emit(Reshape(shape=(*shape[:axis], *shape[axis + 1 :])), value, part=part)

    def matrix(self, index: int, rows: int) -> Value:
        """Weights of all gates, [rows, columns]."""
        layer, value = self.layer, self.part(index)
        fits = value is not None and value.type.shape == (layer.columns, rows)
        layer.node.require(fits, f"input {index} does not fit {layer.columns} sums of {rows} elements each")
        return layer.node.emit(Transpose(perm=(1, 0)), value, part=f"{self.name}_columns{index}")

    def biases(self) -> tuple[Value | None, Value | None]:
        """Biases of the sums from the input, and of a GRU's last sum from the state."""
        layer, node, value = self.layer, self.layer.node, self.part(3)
        if value is None:
            return None, None
        columns, width = layer.columns, layer.width
        fits = value.type.shape == (2 * columns,)
        node.require(fits, f"input 3 does not fit {columns} sums, twice")
        apart = self.operator.linear_before_reset and self.operator.cell == "gru"
        shared = columns - width if apart else columns
        given, own = (
            self.cut(value, [start], [start + shared], f"{self.name}_bias{start}") for start in (0, columns)
        )
        both = node.emit(Add(), given, own, part=f"{self.name}_bias")
        if not apart:
            return both, None
        last, own_last = (
            self.cut(value, [start + shared], [start + columns], f"{self.name}_last{start}")
            for start in (0, columns)
        )
        return joined(node, [both, last], f"{self.name}_biases"), own_last

    def state(self, index: int) -> Value:
        """States before the first step, zeros unless the node has them."""
        layer, value = self.layer, self.part(index)
        shape = (layer.batch, layer.width)
        if value is None:
            return layer.node.part_constant(f"{self.name}_start", np.zeros(shape, np.float32))
        layer.node.require(
            value.type.shape == shape, f"input {index} does not hold {layer.batch} x {layer.width}"
        )
        return value

    def results(self, rows: Value, lengths: Value | None) -> tuple[Value, Value, Value]:
        """All hidden states [T, N, H], the last ones and what cells carry at the end, [N, H] each.

        rows: input of all steps, [T * N, I].
        """
        layer, node, name = self.layer, self.layer.node, self.name
        bias, last_bias = self.biases()
        sums = node.emit(MatMul(), rows, self.matrix(1, rows.type.shape[1]), part=f"{name}_products")
        if bias is not None:
            sums = node.emit(Add(), sums, bias, part=f"{name}_sums")
        steps, batch, width = layer.steps, layer.batch, layer.width
        given = node.emit(Reshape(shape=(steps, batch, layer.columns)), sums, part=f"{name}_given")
        hidden = self.state(5)
        carried = self.state(6) if layer.cell == "lstm" else hidden
        peepholes = self.part(7) if layer.cell == "lstm" else None
        weights = self.matrix(2, width)
        operands = given, weights, hidden, carried, last_bias, peepholes, lengths
        states = node.emit(self.operator, *operands, part=f"{name}_states")
        assert states.producer is not None
        first, final = (1, 0) if self.operator.reverse else (0, steps)
        outputs = self.cut(states, [1 - first, 0, 0], [steps + 1 - first, batch, width], f"{name}_outputs")
        last = self.cut(states, [final, 0, 0], [final + 1, batch, width], f"{name}_last_state")
        last = node.emit(Reshape(shape=(batch, width)), last, part=f"{name}_last")
        return outputs, last, states.producer.outputs[1]

    def cut(self, value: Value, starts: list[int], ends: list[int], part: str) -> Value:
        """Emit the elements from `starts` on, before `ends`."""
        operator = Slice(tuple(starts), tuple(ends), (1,) * len(starts))
        return self.layer.node.emit(operator, value, part=part)


def import_lstm(node: ImportNode) -> None:
    """Import LSTM: gates for input, output, forgetting and the content, with peepholes."""
    _import(node, "lstm")


def import_gru(node: ImportNode) -> None:
    """Import GRU: gates to update, to reset and for the new state."""
    _import(node, "gru")


def import_rnn(node: ImportNode) -> None:
    """Import RNN: one sum and its activation."""
    _import(node, "rnn")


def _import(node: ImportNode, cell: str) -> None:
    layout = node.integer("layout", 0)
    node.require(layout in (0, 1), f"layout {layout}")
    x = node.value(0)
    node.require(
        x.type.is_float and node.rank() == 3, f"input is {x.type}; it must be float<steps x batch x n>"
    )
    if layout:
        x = node.emit(Transpose(perm=(1, 0, 2)), x, part="steps_first")
    steps, batch, inputs = x.type.shape
    layer = ImportedLayer(node, cell, steps, batch, node.kind(2).shape[-1], layout == 1)
    stated = node.integer("hidden_size", layer.width)
    node.require(stated == layer.width, "hidden_size differs from the weights")
    node.require(min(steps, batch, layer.width) > 0, f"input is {x.type}, which has nothing to do")
    rows = node.emit(Reshape(shape=(steps * batch, inputs)), x, part="rows")
    lengths = lengths_of(layer)
    directions = [
        LayerDirection(layer, operator, number) for number, operator in enumerate(operators_of(node, cell))
    ]
    results = [direction.results(rows, lengths) for direction in directions]
    give_directions(
        layer, [_within(layer, outputs, lengths, i) for i, (outputs, _, _) in enumerate(results)], 0
    )
    # A GRU and an RNN carry their hidden state, which int8 has not rounded.
    lasts = [last if cell == "lstm" else carried for _, last, carried in results]
    give_directions(layer, lasts, 1)
    if cell == "lstm":
        give_directions(layer, [carried for _, _, carried in results], 2)


def operators_of(node: ImportNode, cell: str) -> list[Recurrence]:
    """The operators of all directions. Activations with numbers take the next of the lists."""
    directions = DIRECTIONS.get(node.string("direction", "forward"))
    if directions is None:
        node.refuse(f"direction {node.string('direction', 'forward')}")
    count = len(DEFAULTS[cell])
    names = [name.lower() for name in node.strings("activations", DEFAULTS[cell] * len(directions))]
    node.require(len(names) == count * len(directions), f"{len(names)} activations")
    given = [iter(node.numbers(f"activation_{which}")) for which in ("alpha", "beta")]
    numbers = []
    for name in names:
        known = ", ".join(sorted(ACTIVATIONS))
        node.require(name in ACTIVATIONS, f"activation {name}; supported are {known}")
        pairs = zip(given, ACTIVATIONS[name].numbers, strict=False)
        numbers.append(tuple(next(values, default) for values, default in pairs))
    clip = node.number("clip", 0.0)
    node.require(clip >= 0.0, f"clip {clip:g}")
    forget = cell == "lstm" and node.integer("input_forget", 0) != 0
    linear = cell == "gru" and node.integer("linear_before_reset", 0) != 0
    return [
        Recurrence(
            cell,
            tuple(names[i * count : (i + 1) * count]),
            tuple(numbers[i * count : (i + 1) * count]),
            backwards,
            clip,
            forget,
            linear,
        )
        for i, backwards in enumerate(directions)
    ]


def lengths_of(layer: ImportedLayer) -> Value | None:
    """Steps of every sequence; None where all are as long."""
    lengths = layer.node.optional(4)
    if lengths is None or (lengths.data is not None and bool((lengths.data >= layer.steps).all())):
        return None
    layer.node.require(lengths.type.shape == (layer.batch,), f"input 4 is {lengths.type}")
    if lengths.type.element is ElementType.INT32:
        return lengths
    return layer.node.emit(Cast(to=ElementType.INT32), lengths, part="lengths")


def _within(layer: ImportedLayer, outputs: Value, lengths: Value | None, number: int) -> Value:
    """Hidden states with zeros beyond the end of each sequence."""
    if lengths is None or not layer.node.is_used(0):
        return outputs
    node = layer.node
    counts = node.emit(Cast(to=ElementType.FLOAT), lengths, part=f"counts{number}")
    counts = node.emit(Reshape(shape=(1, layer.batch, 1)), counts, part=f"columns{number}")
    times = np.arange(layer.steps, dtype=np.float32).reshape(-1, 1, 1)
    places = node.part_constant(f"places{number}", times)
    within = node.emit(Compare(relation="greater"), counts, places, part=f"within{number}")
    zero = node.part_constant(f"beyond{number}", np.zeros((), np.float32))
    return node.emit(Where(), within, outputs, zero, part=f"kept{number}")


def give_directions(layer: ImportedLayer, parts: list[Value], output: int) -> None:
    """Put the directions of an output together, all with the axes [..., N, H]."""
    node = layer.node
    if not node.is_used(output):
        return
    apart = []
    for number, value in enumerate(parts):
        shape = value.type.shape
        if layer.batch_first and len(shape) == 3:
            value = node.emit(Transpose(perm=(1, 0, 2)), value, part=f"batch_first{number}")
            shape = value.type.shape
        axis = len(shape) - (1 if layer.batch_first else 2)
        wanted = (*shape[:axis], 1, *shape[axis:])
        apart.append(node.emit(Reshape(shape=wanted), value, part=f"direction{output}_{number}"))
    whole = apart[0] if len(apart) == 1 else joined(node, apart, f"directions{output}", axis=axis)
    node.emit(Identity(), whole, output=output)


RULES: dict[str, ImportRule] = {
    "GRU": ImportRule(import_gru, newest=22),
    "LSTM": ImportRule(import_lstm, newest=22),
    "RNN": ImportRule(import_rnn, newest=22),
}
