"""What a recurrent layer carries between calls is moved in float."""

from __future__ import annotations

import numpy as np

from qglow.core.types import float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.ops.elementwise import Relu
from qglow.graph.ops.movement import Slice
from qglow.graph.ops.recurrence import Recurrence
from qglow.graph.ops.shape import Concat, Reshape
from qglow.quantization.carried import keep_carried_float, keep_passed_on_float
from qglow.quantization.placement import FloatReasons

WIDTH = 4


def stream(gives_state: bool = True) -> Graph:
    """One step of an LSTM whose states come in one input [2, N, H] and leave in one output."""
    b = GraphBuilder("stream")
    given, state = b.input("x", float_type(1, 1, 4 * WIDTH)), b.input("state", float_type(2, 1, WIDTH))
    hidden, carried = (
        b.node(
            Reshape((1, WIDTH)),
            b.node(Slice((i, 0, 0), (i + 1, 1, WIDTH), (1, 1, 1)), state, name=f"slice{i}"),
            name=f"flat{i}",
        )
        for i in range(2)
    )
    weights = b.constant("w", np.ones((WIDTH, 4 * WIDTH), np.float32))
    numbers = ((),) * 3
    layer = Recurrence("lstm", ("sigmoid", "tanh", "tanh"), numbers)
    states = b.node(layer, given, weights, hidden, carried, name="layer")
    last = states.producer.outputs[1]
    kept = b.node(Reshape((1, 1, WIDTH)), last, name="kept")
    shown = b.node(Slice((1, 0, 0), (2, 1, WIDTH), (1, 1, 1)), states, name="shown")
    return b.finish(b.node(Concat(0), shown, kept, name="out")) if gives_state else b.finish(shown)


def kept(graph: Graph) -> set[str]:
    reasons: FloatReasons = {}
    keep_carried_float(graph, reasons)
    return {node.output.name for node in reasons}


def test_what_moves_carried_values_from_an_input_and_to_an_output_stays_float() -> None:
    assert kept(stream()) == {"slice1", "flat1", "kept", "out"}


def test_carried_values_that_do_not_leave_are_moved_as_they_come() -> None:
    assert kept(stream(gives_state=False)) == {"slice1", "flat1"}


def test_hidden_states_of_a_float_layer_are_moved_in_float() -> None:
    graph = stream()
    layer = next(node for node in graph.nodes if node.operator.recurs is not None)
    reasons: FloatReasons = {layer: "a rule"}
    keep_carried_float(graph, reasons)
    moved = {node.output.name for node in reasons if node is not layer}
    assert moved == {"slice0", "slice1", "flat0", "flat1", "shown", "kept", "out"}


def test_what_moves_inputs_to_outputs_stays_float() -> None:
    b = GraphBuilder("buffer")
    kept, x = b.input("kept", float_type(1, 3, 2)), b.input("x", float_type(1, 3, 1))
    frames = b.node(Concat(2), kept, x, name="frames")
    last = b.node(Slice((0, 0, 1), (1, 3, 3), (1, 1, 1)), frames, name="last")
    first = b.node(Slice((0, 0, 0), (1, 3, 1), (1, 1, 1)), frames, name="first")
    reasons: FloatReasons = {}
    keep_passed_on_float(b.finish(last, b.node(Relu(), first, name="y")), reasons)
    assert {node.output.name for node in reasons} == {"frames", "last"}
