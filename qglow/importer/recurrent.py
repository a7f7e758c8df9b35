"""Import of recurrent operators of known length, step by step: https://onnx.ai/onnx/operators/ GRU, LSTM, RNN

The products with the input are one for all steps. Every step has its own tensors, so that its integers have
the parameters of what the step sees.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from qglow.core.types import ElementType
from qglow.graph.graph import Value
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Add, Clip, Mul, Relu, Sub
from qglow.graph.ops.functions import Elu, HardSigmoid, LeakyRelu, Sigmoid, Softplus, Tanh
from qglow.graph.ops.linear import MatMul
from qglow.graph.ops.logic import Compare
from qglow.graph.ops.movement import Slice
from qglow.graph.ops.selection import Where
from qglow.graph.ops.shape import Cast, Identity, Reshape, Transpose
from qglow.importer.node import ImportNode, ImportRule
from qglow.importer.shape import joined

MOST_STEPS = 64
"""Steps of all directions that one node may become."""

PLAIN: dict[str, Operator] = {
    "relu": Relu(),
    "sigmoid": Sigmoid(),
    "softplus": Softplus(),
    "tanh": Tanh(),
}
"""Activations without numbers, by name in lower case."""

WITH_NUMBERS: dict[str, tuple[Callable[..., Operator], tuple[float, ...]]] = {
    "elu": (Elu, (1.0,)),
    "hardsigmoid": (HardSigmoid, (0.2, 0.5)),
    "leakyrelu": (LeakyRelu, (0.01,)),
}
"""Activations with alpha, or with alpha and beta, and the defaults of these."""

DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""For every direction whether it begins with the last step."""


@dataclass(frozen=True)
class _Extents:
    steps: int
    batch: int
    width: int
    gates: int


@dataclass(frozen=True)
class _Cell:
    """One direction. rows: what the input adds to the gates, [steps * batch, gates * width]."""

    node: ImportNode
    name: str
    number: int
    extents: _Extents
    rows: Value
    recurrent: Value
    recurrent_bias: Value | None
    peepholes: Value | None
    activations: tuple[Operator, ...]
    clip: float

    def emit(self, operator: Operator, *inputs: Value, part: str) -> Value:
        """Add an operator of this direction."""
        return self.node.emit(operator, *inputs, part=f"{self.name}_{part}")

    def bounded(self, value: Value, part: str) -> Value:
        """Clip what an activation reads, where the node asks for it."""
        if not self.clip:
            return value
        return self.emit(Clip(lo=-self.clip, hi=self.clip), value, part=f"{part}_clipped")

    def columns(self, value: Value, first: int, count: int, part: str) -> Value:
        """The columns of some gates."""
        rows, width = value.type.shape[0], self.extents.width
        ends = (rows, (first + count) * width)
        return self.emit(Slice((0, first * width), ends, (1, 1)), value, part=part)

    def activated(self, which: int, value: Value, part: str) -> Value:
        """An activation of the gate's sums."""
        return self.emit(self.activations[which], self.bounded(value, part), part=part)

    def from_input(self, step: int) -> Value:
        """The gates' sums from the input at one step, [batch, gates * width]."""
        batch = self.extents.batch
        starts, ends = (step * batch, 0), ((step + 1) * batch, self.rows.type.shape[1])
        return self.emit(Slice(starts, ends, (1, 1)), self.rows, part=f"input{step}")


State = tuple[Value, ...]
"""Hidden state, [batch, width], and the cell's where there is one."""

Step = Callable[[_Cell, int, State], State]


def import_lstm(node: ImportNode) -> None:
    """Import LSTM: gates for input, output, forgetting and the cell, with peepholes."""
    node.require(node.integer("input_forget", 0) == 0, "input_forget 1")
    _import(node, 4, 2, ("Sigmoid", "Tanh", "Tanh"), _lstm_step)


def import_gru(node: ImportNode) -> None:
    """Import GRU: gates to update, to reset and for the new state."""
    linear = node.integer("linear_before_reset", 0) != 0
    _import(node, 3, 1, ("Sigmoid", "Tanh"), _gru_linear_step if linear else _gru_step)


def import_rnn(node: ImportNode) -> None:
    """Import RNN: one sum and its activation."""
    _import(node, 1, 1, ("Tanh",), _rnn_step)


def _import(node: ImportNode, gates: int, states: int, defaults: tuple[str, ...], step: Step) -> None:
    layout = node.integer("layout", 0)
    node.require(layout in (0, 1), f"layout {layout}")
    x = node.value(0)
    node.require(
        x.type.is_float and node.rank() == 3, f"input is {x.type}; it must be float<steps x batch x n>"
    )
    if layout:
        x = node.emit(Transpose(perm=(1, 0, 2)), x, part="steps_first")
    steps, batch, _ = x.type.shape
    directions = DIRECTIONS.get(node.string("direction", "forward"))
    if directions is None:
        node.refuse(f"direction {node.string('direction', 'forward')}")
    extents = _Extents(steps, batch, node.kind(2).shape[-1], gates)
    node.require(
        node.integer("hidden_size", extents.width) == extents.width, "hidden_size differs from the weights"
    )
    node.require(steps > 0 and batch > 0, f"input is {x.type}, which has nothing to do")
    node.require(
        steps * len(directions) <= MOST_STEPS,
        f"{steps * len(directions)} steps; up to {MOST_STEPS} are supported: bind a shorter sequence",
    )
    functions = _activations(node, defaults, len(directions))
    rows = node.emit(Reshape(shape=(steps * batch, x.type.shape[2])), x, part="rows")
    results, finals = [], []
    for number, backwards in enumerate(directions):
        cell = _cell(node, number, extents, rows, functions[number])
        outputs, state = _run(cell, backwards, _initial(node, cell, states, layout), step)
        results.append(outputs)
        finals.append(state)
    _give(node, extents, layout, results, finals)


def _activations(node: ImportNode, defaults: tuple[str, ...], directions: int) -> list[tuple[Operator, ...]]:
    """The activations of every direction. Those with numbers take the next of the lists, where there are."""
    names = [name.lower() for name in node.strings("activations", defaults * directions)]
    node.require(len(names) == len(defaults) * directions, f"{len(names)} activations")
    numbers = [iter(node.numbers(f"activation_{which}")) for which in ("alpha", "beta")]
    found: list[Operator] = []
    for name in names:
        if name in PLAIN:
            found.append(PLAIN[name])
            continue
        known = ", ".join(sorted([*PLAIN, *WITH_NUMBERS]))
        node.require(name in WITH_NUMBERS, f"activation {name}; supported are {known}")
        operator, values = WITH_NUMBERS[name]
        found.append(operator(*(next(given, value) for given, value in zip(numbers, values, strict=False))))
    size = len(defaults)
    return [tuple(found[i * size : (i + 1) * size]) for i in range(directions)]


def _part(node: ImportNode, index: int, number: int, part: str) -> Value | None:
    """Take what an operand holds for one direction, without the axis of directions."""
    value = node.optional(index)
    if value is None:
        return None
    shape = value.type.shape
    node.require(number < shape[0], f"input {index} is {value.type}; it lacks a direction")
    if shape[0] > 1:
        starts, ends = (number, *(0,) * (len(shape) - 1)), (number + 1, *shape[1:])
        value = node.emit(Slice(starts, ends, (1,) * len(shape)), value, part=f"{part}_alone")
    return node.emit(Reshape(shape=shape[1:]), value, part=part)


def _cell(
    node: ImportNode, number: int, extents: _Extents, x: Value, activations: tuple[Operator, ...]
) -> _Cell:
    name = ("forth", "back")[number]
    weights, recurrent = (_part(node, i, number, f"{name}_weights{i}") for i in (1, 2))
    bias = _part(node, 3, number, f"{name}_bias")
    columns = extents.gates * extents.width
    fits = (
        weights is not None
        and recurrent is not None
        and weights.type.shape == (columns, x.type.shape[1])
        and recurrent.type.shape == (columns, extents.width)
        and (bias is None or bias.type.shape == (2 * columns,))
    )
    if not fits or weights is None or recurrent is None:
        node.refuse(f"weights or bias do not fit an input of {x.type.shape[1]}")
    turned = [
        node.emit(Transpose(perm=(1, 0)), w, part=f"{name}_columns{i}")
        for i, w in enumerate((weights, recurrent))
    ]
    rows = node.emit(MatMul(), x, turned[0], part=f"{name}_products")
    own = None
    if bias is not None:
        both = [
            node.emit(Slice((i * columns,), ((i + 1) * columns,), (1,)), bias, part=f"{name}_bias{i}")
            for i in range(2)
        ]
        own = both[1]
        rows = node.emit(Add(), rows, both[0], part=f"{name}_sums")
    peepholes = _part(node, 7, number, f"{name}_peepholes")
    clip = node.number("clip", 0.0)
    return _Cell(node, name, number, extents, rows, turned[1], own, peepholes, activations, clip)


def _initial(node: ImportNode, cell: _Cell, states: int, layout: int) -> State:
    """The states before the first step: zeros unless the node has them."""
    extents, found = cell.extents, []
    for index in (5, 6)[:states]:
        value = node.optional(index)
        if value is None:
            zeros = np.zeros((extents.batch, extents.width), np.float32)
            found.append(node.part_constant(f"{cell.name}_start", zeros))
            continue
        directions = 1 if layout else 0
        node.require(cell.number < value.type.shape[directions], f"input {index} is {value.type}")
        starts, ends = [0, 0, 0], list(value.type.shape)
        starts[directions], ends[directions] = cell.number, cell.number + 1
        alone = cell.emit(Slice(tuple(starts), tuple(ends), (1, 1, 1)), value, part=f"start{index}_alone")
        shape = (extents.batch, extents.width)
        node.require(alone.type.size == math.prod(shape), f"input {index} is {value.type}")
        found.append(cell.emit(Reshape(shape=shape), alone, part=f"start{index}"))
    return tuple(found)


def _run(cell: _Cell, backwards: bool, state: State, step: Step) -> tuple[Value, State]:
    """All steps: the hidden states [steps * batch, width] in the order of time, and the last state."""
    outputs: dict[int, Value] = {}
    times = range(cell.extents.steps)
    lengths = list(_within(cell))
    for time in reversed(times) if backwards else times:
        new = step(cell, time, state)
        if lengths:
            within, zero = lengths[time], cell.node.part_constant("beyond", np.zeros((), np.float32))
            outputs[time] = cell.emit(Where(), within, new[0], zero, part=f"output{time}")
            state = tuple(
                cell.emit(Where(), within, now, before, part=f"kept{i}_{time}")
                for i, (now, before) in enumerate(zip(new, state, strict=True))
            )
        else:
            outputs[time], state = new[0], new
    return joined(cell.node, [outputs[time] for time in times], f"{cell.name}_outputs"), state


def _within(cell: _Cell) -> Iterator[Value]:
    """Tell for every step whether it lies within each sequence; nothing where all are as long."""
    node, extents = cell.node, cell.extents
    lengths = node.optional(4)
    if lengths is None or (lengths.data is not None and bool((lengths.data >= extents.steps).all())):
        return
    column = node.emit(Reshape(shape=(extents.batch, 1)), lengths, part="lengths")
    column = node.emit(Cast(to=ElementType.FLOAT), column, part="counts")
    for time in range(extents.steps):
        place = node.part_constant("place", np.array(time, np.float32))
        yield node.emit(Compare(relation="greater"), column, place, part=f"within{time}")


def _give(
    node: ImportNode, extents: _Extents, layout: int, results: list[Value], finals: list[State]
) -> None:
    steps, batch, width = extents.steps, extents.batch, extents.width
    shape = (batch, steps, 1, width) if layout else (steps, 1, batch, width)
    parts = []
    for i, result in enumerate(results):
        if layout:
            apart = node.emit(Reshape(shape=(steps, batch, width)), result, part=f"steps{i}")
            result = node.emit(Transpose(perm=(1, 0, 2)), apart, part=f"batch_first{i}")
        parts.append(node.emit(Reshape(shape=shape), result, part=f"direction{i}"))
    if node.is_used(0):
        node.emit(Identity(), _along(node, parts, 2 if layout else 1, "directions"))
    for index in range(len(finals[0])):
        if node.is_used(index + 1):
            ends = (batch, 1, width) if layout else (1, batch, width)
            last = [
                node.emit(Reshape(shape=ends), state[index], part=f"last{index}_{i}")
                for i, state in enumerate(finals)
            ]
            node.emit(Identity(), _along(node, last, 1 if layout else 0, f"last{index}"), output=index + 1)


def _along(node: ImportNode, parts: list[Value], axis: int, part: str) -> Value:
    return parts[0] if len(parts) == 1 else joined(node, parts, part, axis=axis)


# Steps


def _summed(cell: _Cell, step: int, state: Value) -> Value:
    """Sums of all gates, of the input and the state."""
    own = cell.emit(MatMul(), state, cell.recurrent, part=f"recurrent{step}")
    if cell.recurrent_bias is not None:
        own = cell.emit(Add(), own, cell.recurrent_bias, part=f"shifted{step}")
    return cell.emit(Add(), cell.from_input(step), own, part=f"gates{step}")


def _rnn_step(cell: _Cell, step: int, state: State) -> State:
    return (cell.activated(0, _summed(cell, step, state[0]), f"state{step}"),)


def _lstm_step(cell: _Cell, step: int, state: State) -> State:
    sums, (_, before) = _summed(cell, step, state[0]), state
    wanted, out, forgotten, new = (
        cell.columns(sums, i, 1, f"{name}{step}") for i, name in enumerate(("in", "out", "forget", "cell"))
    )
    if cell.peepholes is not None:
        wanted = _peeped(cell, wanted, before, 0, f"in{step}")
        forgotten = _peeped(cell, forgotten, before, 2, f"forget{step}")
    wanted = cell.activated(0, wanted, f"in{step}_gate")
    forgotten = cell.activated(0, forgotten, f"forget{step}_gate")
    new = cell.activated(1, new, f"new{step}")
    kept = cell.emit(Mul(), forgotten, before, part=f"kept{step}")
    content = cell.emit(
        Add(), kept, cell.emit(Mul(), wanted, new, part=f"added{step}"), part=f"content{step}"
    )
    if cell.peepholes is not None:
        out = _peeped(cell, out, content, 1, f"out{step}")
    out = cell.activated(0, out, f"out{step}_gate")
    shown = cell.emit(cell.activations[2], content, part=f"shown{step}")
    return cell.emit(Mul(), out, shown, part=f"state{step}"), content


def _peeped(cell: _Cell, gate: Value, content: Value, which: int, part: str) -> Value:
    """A gate's sums and its share of the cell's content."""
    width = cell.extents.width
    ends = ((which + 1) * width,)
    if cell.peepholes is None:
        return gate
    factors = cell.emit(Slice((which * width,), ends, (1,)), cell.peepholes, part=f"{part}_factors")
    return cell.emit(
        Add(), gate, cell.emit(Mul(), content, factors, part=f"{part}_peep"), part=f"{part}_peeped"
    )


def _gru_step(cell: _Cell, step: int, state: State) -> State:
    """The state is reset before its product."""
    return _gru(cell, step, state[0], linear=False)


def _gru_linear_step(cell: _Cell, step: int, state: State) -> State:
    """The product of the state is reset, with its bias."""
    return _gru(cell, step, state[0], linear=True)


def _gru(cell: _Cell, step: int, before: Value, linear: bool) -> State:
    given = cell.from_input(step)
    bias = cell.recurrent_bias
    count = 3 if linear else 2
    own = cell.emit(MatMul(), before, _gates(cell, cell.recurrent, 0, count), part=f"recurrent{step}")
    if bias is not None:
        own = cell.emit(Add(), own, _gates(cell, bias, 0, count), part=f"shifted{step}")
    gates = cell.columns(own, 0, 2, f"own{step}") if linear else own
    gates = cell.emit(Add(), cell.columns(given, 0, 2, f"given{step}"), gates, part=f"gates{step}")
    update = cell.activated(0, cell.columns(gates, 0, 1, f"update{step}"), f"update{step}_gate")
    reset = cell.activated(0, cell.columns(gates, 1, 1, f"reset{step}"), f"reset{step}_gate")
    if linear:
        kept = cell.emit(Mul(), reset, cell.columns(own, 2, 1, f"own_new{step}"), part=f"reset_new{step}")
    else:
        held = cell.emit(Mul(), reset, before, part=f"held{step}")
        kept = cell.emit(MatMul(), held, _gates(cell, cell.recurrent, 2, 1), part=f"reset_new{step}")
        if bias is not None:
            kept = cell.emit(Add(), kept, _gates(cell, bias, 2, 1), part=f"shifted_new{step}")
    new = cell.emit(Add(), cell.columns(given, 2, 1, f"given_new{step}"), kept, part=f"sum_new{step}")
    new = cell.activated(1, new, f"new{step}")
    # (1 - z) * new + z * before, with one product less.
    change = cell.emit(Mul(), update, cell.emit(Sub(), before, new, part=f"less{step}"), part=f"change{step}")
    return (cell.emit(Add(), new, change, part=f"state{step}"),)


def _gates(cell: _Cell, value: Value, first: int, count: int) -> Value:
    """Take what a matrix or a bias holds for some gates: its last axis."""
    width, shape = cell.extents.width, value.type.shape
    starts = (*(0,) * (len(shape) - 1), first * width)
    ends = (*shape[:-1], (first + count) * width)
    return cell.emit(Slice(starts, ends, (1,) * len(shape)), value, part=f"gates{first}")


RULES: dict[str, ImportRule] = {
    "GRU": ImportRule(import_gru, newest=22),
    "LSTM": ImportRule(import_lstm, newest=22),
    "RNN": ImportRule(import_rnn, newest=22),
}
