"""States that grow by rows, such as keys and values of tokens, in int8 (rule 15 of the numeric contract).

A row is measured when it is new: its scale and its integers join those of the rows before it, and both are
what the next call reads. Everything else in the graph reads `float32(integer) * scale` of all rows, those of
the same call among them, so that the bits of a token do not depend on the call that it came in.
"""

from __future__ import annotations

from collections.abc import Mapping

from qglow.core.errors import UnsupportedError
from qglow.core.types import ElementType, TensorType
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Clip, Div, Mul
from qglow.graph.ops.functions import Round
from qglow.graph.ops.rows import RowScales
from qglow.graph.ops.shape import Cast
from qglow.graph.verifier import verify_graph
from qglow.numerics.rows import LARGEST

_SCALES = "scales."


def scales_name(state: str) -> str:
    """Name of the state that holds the scales of the rows of another one."""
    return f"{_SCALES}{state}"


def is_scales(name: str, names: Mapping[str, object]) -> bool:
    """Whether a state of this name holds the scales of another one among `names`."""
    return name.startswith(_SCALES) and name.removeprefix(_SCALES) in names


def keep_rows_in_int8(graph: Graph, states: Mapping[str, str]) -> Graph:
    """A copy of a graph whose states hold int8 rows, and their scales in states beside them.

    states: inputs with the outputs that continue them. Raises UnsupportedError for an output that is no float
    state of several axes followed by new rows, and where the graph reads the state elsewhere.
    """
    made = graph.copy()
    inputs, outputs = ({v.name: v for v in values} for values in (made.inputs, made.outputs))
    for taken, given in states.items():
        _Rows(made, inputs[taken], outputs[given]).rewrite()
    verify_graph(made, "states in int8")
    return made


class _Rows:
    """The rewriting of one state."""

    def __init__(self, graph: Graph, state: Value, result: Value) -> None:
        self._graph = graph
        self._state = state
        self._result = result
        node = result.producer
        axis = None if node is None else node.operator.joined_axis(node.input_types())
        joined = node is not None and axis is not None and state in node.inputs[:1] and len(node.inputs) == 2
        if not joined or not state.type.is_float:
            raise self._unfit(f"output '{result.name}' is not the state in float, followed by new rows")
        assert node is not None and axis is not None
        if axis == len(state.type.shape) - 1:
            raise self._unfit("new places join it along the last axis, along which rows lie")
        if state.users() != [node]:
            raise self._unfit("the model reads it before new rows join it")
        self._node, self._axis = node, axis

    def rewrite(self) -> None:
        """Rewrite the state, in place."""
        graph, shape = self._graph, self._state.type.shape
        new = self._node.inputs[1]
        assert new is not None
        scales = self._part("row_scales", RowScales(), new)
        divided = self._part("divided", Div(), new, scales)
        clipped = self._part("clipped", Clip(lo=-float(LARGEST), hi=float(LARGEST)), divided)
        codes = self._part("codes", Cast(to=ElementType.INT8), self._part("rounded", Round(), clipped))
        held = Value(self._state.name, TensorType(ElementType.INT8, shape))
        held_scales = Value(scales_name(self._state.name), self._state.type.with_shape((*shape[:-1], 1)))
        all_codes = self._part("all_codes", self._node.operator, held, codes)
        all_scales = self._part("all_scales", self._node.operator, held_scales, scales)
        real = self._part(
            "real", Mul(), self._part("widened", Cast(to=ElementType.FLOAT), all_codes), all_scales
        )
        graph.inputs = [held if v is self._state else v for v in graph.inputs] + [held_scales]
        graph.replace_value(self._result, real)
        graph.outputs = [all_codes if v is real else v for v in graph.outputs] + [all_scales]
        graph.remove(self._node)
        all_codes.name, all_scales.name = self._result.name, scales_name(self._result.name)

    def _part(self, part: str, operator: Operator, *inputs: Value) -> Value:
        """Add an operator before the node that joins rows, named after it."""
        kind = operator.infer([value.type for value in inputs])[0]
        value = Value(self._graph.unique_name(f"{self._result.name}.{part}"), kind)
        name = self._graph.unique_name(f"{self._node.name}.{part}")
        self._graph.insert_before(self._node, Node(name, operator, inputs, [value]))
        return value

    def _unfit(self, reason: str) -> UnsupportedError:
        return UnsupportedError(f"state '{self._state.name}' has no rows in int8: {reason}")
