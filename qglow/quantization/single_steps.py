"""Recurrent layers of one step, whose product of the state can measure its rows as other products do.

A layer that a stream calls step by step reads its state from the caller. No range of calibration holds for
what later calls carry, and a state that is clipped once is wrong for all of them. Its product and its cell
are taken apart: the product becomes one of rows by constant weights, the cell operators in float.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qglow.core.types import TensorType
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.elementwise import Add, Mul, Sub
from qglow.graph.ops.functions import Sigmoid, Tanh
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.movement import Slice
from qglow.graph.ops.shape import Reshape
from qglow.graph.rewriting import operand
from qglow.numerics.scalar.cells import RecurrentCell

Emit = Callable[..., Value]
"""Result of an operator that is added before the layer: `emit(part, operator, *inputs)`."""
_ACTIVATIONS = {"lstm": ("sigmoid", "tanh", "tanh"), "gru": ("sigmoid", "tanh"), "rnn": ("tanh",)}
_SHAPED = ("peepholes", "lengths")


def unfit_step(node: Node) -> str | None:
    """Reason why a recurrent layer has no product of rows that stands alone; None if it has one."""
    policy, cell = node.operator.recurs, node.operator.recurrent_cell
    if policy is None or cell is None:
        return "it multiplies no states"
    hidden, w = node.operand(policy.state), node.operand(policy.w)
    if node.output.type.shape[0] != 2:
        return "it has many steps, each of which multiplies the state of the one before"
    if hidden is None or not hidden.type.is_float or hidden.data is not None:
        return "no call gives its first state"
    if w is None or w.data is None or not w.type.is_float:
        return "its weights are computed by the graph"
    if not np.all(np.isfinite(w.data)):
        return f"its {policy.w} holds NaN or infinities"
    if cell.resets_state:
        return "it multiplies a state that was reset by another product"
    plain = not cell.clip and not cell.input_forget and cell.activations == _ACTIVATIONS[cell.cell]
    if not plain or any(node.operand(name) is not None for name in _SHAPED):
        return "its cell is no sigmoids and hyperbolic tangents of sums alone"
    read = node.graph is not None and node.graph.is_output(node.output)
    if read or not all(_cuts_new_state(user, node, cell) for user in node.output.users()):
        return "what it began with is read as well"
    return None


def take_apart(graph: Graph, node: Node, emit: Emit) -> Node:
    """Replace a layer by its product, which keeps its name and is returned, and its cell.

    `unfit_step` must have no reason. emit: adds an operator of the cell before the layer.
    """
    policy, cell = node.operator.recurs, node.operator.recurrent_cell
    assert policy is not None and cell is not None
    hidden, w, carried = (node.operand(name) for name in (policy.state, policy.w, policy.carried))
    assert hidden is not None and w is not None and carried is not None
    (count, width), columns = hidden.type.shape, w.type.shape[1]
    own = Value(graph.unique_name(f"{node.output.name}.own"), TensorType(w.type.element, (count, columns)))
    product = graph.insert_before(
        node, Node(graph.unique_name(f"{node.name}.product"), Gemm(), [hidden, w, None], [own])
    )
    given = emit("given", Reshape(shape=(count, columns)), operand(node))
    step = _Step(cell, emit, count, width)
    new, after = step.results(given, own, carried, node.operand("bias"))
    row = emit("row", Reshape(shape=(1, count, width)), new)
    for user in node.output.users():
        user.operator, user.inputs = Reshape(shape=row.type.shape), (row,)
    graph.replace_value(node.outputs[1], after)
    name, node.outputs[1].name = node.outputs[1].name, graph.unique_name(f"{node.name}.before")
    after.name = name
    graph.remove(node)
    product.name = node.name
    return product


def _cuts_new_state(user: Node, node: Node, cell: RecurrentCell) -> bool:
    """Whether a reader of both states of a layer takes the new one alone."""
    shape, place = node.output.type.shape, 0 if cell.reverse else 1
    return user.operator == Slice((place, 0, 0), (place + 1, *shape[1:]), (1, 1, 1))


class _Step:
    """The cell of one step, for `count` sequences of `width` states."""

    def __init__(self, cell: RecurrentCell, emit: Emit, count: int, width: int) -> None:
        self._cell, self._emit = cell, emit
        self._count, self._width = count, width

    def results(self, given: Value, own: Value, carried: Value, bias: Value | None) -> tuple[Value, Value]:
        """New states [N, H], and what is carried on."""
        if self._cell.cell == "lstm":
            return self._lstm(self._emit("sums", Add(), given, own), carried)
        if self._cell.cell == "gru":
            new = self._gru(given, own, carried, bias)
        else:
            new = self._emit("state", Tanh(), self._emit("sums", Add(), given, own))
        return new, new

    def _lstm(self, sums: Value, content: Value) -> tuple[Value, Value]:
        emit = self._emit
        gates = emit("gates", Sigmoid(), self._part(sums, 0, 3))
        wanted, out, kept = (self._part(gates, number, number + 1) for number in range(3))
        new = emit("new", Tanh(), self._part(sums, 3, 4))
        left, added = emit("left", Mul(), kept, content), emit("added", Mul(), wanted, new)
        after = emit("content", Add(), left, added)
        return emit("state", Mul(), out, emit("bounded", Tanh(), after)), after

    def _gru(self, given: Value, own: Value, before: Value, bias: Value | None) -> Value:
        emit = self._emit
        sums = emit("sums", Add(), self._part(given, 0, 2), self._part(own, 0, 2))
        gates = emit("gates", Sigmoid(), sums)
        update, reset = (self._part(gates, number, number + 1) for number in range(2))
        last = self._part(own, 2, 3)
        if bias is not None:
            last = emit("last", Add(), last, bias)
        last = emit("reset", Mul(), reset, last)
        new = emit("new", Tanh(), emit("new_sums", Add(), self._part(given, 2, 3), last))
        moved = emit("moved", Mul(), update, emit("change", Sub(), before, new))
        return emit("state", Add(), new, moved)

    def _part(self, value: Value, first: int, stop: int) -> Value:
        """Columns of some gates."""
        starts, ends = (0, first * self._width), (self._count, stop * self._width)
        return self._emit("gate", Slice(starts, ends, (1, 1)), value)
