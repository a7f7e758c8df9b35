"""What a recurrent layer carries between calls is moved in float."""

from __future__ import annotations

import numpy as np

from qglow.core.types import float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.ops.movement import Slice
from qglow.graph.ops.recurrence import Recurrence
from qglow.graph.ops.shape import Concat, Reshape
from qglow.quantization.carried import keep_carried_float
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
