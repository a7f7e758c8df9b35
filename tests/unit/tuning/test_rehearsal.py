"""Float programs that rehearse what an int8 program does."""

from __future__ import annotations

import numpy as np

from qglow.graph.interpreter import interpret
from qglow.graph.text import parse_graph
from qglow.graph.verifier import verify_graph
from qglow.tuning.rehearsal import _copied_for

GRAPH = """graph g (%x: float<1 x 3>) -> (%z) {
  %a: float<1 x 3> = Relu @"n0" (%x)
  %b: float<1 x 3> = Relu @"n1" (%x)
  %c: float<1 x 3> = Relu @"n2" (%x)
  %d: float<1 x 3> = Add @"n3" (%a, %b)
  %z: float<1 x 3> = Add @"n4" (%c, %d)
}
"""


def test_readers_of_a_value_may_have_copies_of_their_own() -> None:
    """A value that is rounded at three scales has two copies."""
    graph = parse_graph(GRAPH)
    (x,) = graph.inputs
    first, second, _third = x.users()
    copies = [_copied_for(graph, x, [node]) for node in (first, second)]
    verify_graph(graph, "with copies")
    assert len({copy.name for copy in copies}) == 2
    data = np.array([[-1.5, 0.0, 2.0]], np.float32)
    np.testing.assert_array_equal(interpret(graph, {"x": data})["z"], 3 * np.maximum(data, 0))
