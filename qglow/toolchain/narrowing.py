"""Graphs with fewer outputs than the file has, or states of another type, for programs that are called so."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from qglow.core.passes import PassLog
from qglow.core.types import ElementType, TensorType
from qglow.graph.graph import Graph, Value
from qglow.graph.ops.shape import Cast
from qglow.graph.rewriting import operand, producer_of
from qglow.passes.eliminate_dead_nodes import EliminateDeadNodes


def with_outputs(graph: Graph, names: Collection[str]) -> Graph:
    """A copy that gives these outputs alone, and computes nothing that only others need; inputs stay."""
    narrowed = graph.copy()
    narrowed.outputs = [value for value in narrowed.outputs if value.name in names]
    EliminateDeadNodes().run(narrowed, PassLog())
    return narrowed


def continued_inputs(graph: Graph) -> dict[str, str]:
    """Inputs, each with the only output that is this input followed by new places; casts are left out."""
    found: dict[str, list[str]] = {}
    for result in graph.outputs:
        rounding = producer_of(result, Cast)
        node = (result if rounding is None else operand(rounding)).producer
        if node is None or node.operator.joined_axis(node.input_types()) is None:
            continue
        first = operand(node)
        widening = producer_of(first, Cast)
        state = first if widening is None else operand(widening)
        if state in graph.inputs:
            found.setdefault(state.name, []).append(result.name)
    return {name: outputs[0] for name, outputs in found.items() if len(outputs) == 1}


def with_float_states(graph: Graph, states: Mapping[str, str]) -> Graph:
    """A copy whose states of 16-bit reals, which only casts read and give, are the float32 between the casts.

    states: inputs with the outputs that continue them. Rows that join such a state are then written in place,
    and have the same bits in the call that makes them as in later ones. Nothing is rounded to 16 bits.
    """
    made = graph.copy()
    inputs, outputs = ({v.name: v for v in values} for values in (made.inputs, made.outputs))
    for taken, given in states.items():
        _widen(made, inputs[taken], outputs[given])
    return made


def _widen(graph: Graph, state: Value, result: Value) -> None:
    """Change one state, in place, if it is one of 16 bits between casts."""
    readers, rounding = state.users(), producer_of(result, Cast)
    casts = [producer_of(user.output, Cast) for user in readers]
    if not state.type.is_half or rounding is None or not all(casts):
        return
    real = operand(rounding)
    if not (real.type.is_float and all(user.output.type.is_float for user in readers)):
        return
    widened = Value(state.name, TensorType(ElementType.FLOAT, state.type.shape))
    graph.inputs = [widened if value is state else value for value in graph.inputs]
    for user in readers:
        graph.replace_value(user.output, widened)
        graph.remove(user)
    graph.outputs = [real if value is result else value for value in graph.outputs]
    name, result.name = result.name, graph.unique_name(f"{result.name}__rounded")
    real.name = name
    if not result.uses:
        graph.remove(rounding)
