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

    states: inputs with the outputs that continue them; one of both may be float32 already. Rows that join
    such a state are then written in place, and have the same bits in the call that makes them as in later
    ones. Nothing is rounded to 16 bits.
    """
    made = graph.copy()
    inputs, outputs = ({v.name: v for v in values} for values in (made.inputs, made.outputs))
    for taken, given in states.items():
        _widen(made, inputs[taken], outputs[given])
    return made


def _widen(graph: Graph, state: Value, result: Value) -> None:
    """Change one state, in place, if it has 16 bits between casts."""
    rounding, readers = producer_of(result, Cast), state.users()
    if not (state.type.is_half or (state.type.is_float and result.type.is_half)):
        return
    real = result if rounding is None or not result.type.is_half else operand(rounding)
    casts = [producer_of(user.output, Cast) for user in readers] if state.type.is_half else []
    if not (real.type.is_float and all(cast is not None and cast.output.type.is_float for cast in casts)):
        return
    if real is state or real.producer in casts:
        return  # the state as it was
    if state.type.is_half:
        _widen_input(graph, state)
    if real is not result:
        _widen_output(graph, result, real)


def _widen_input(graph: Graph, state: Value) -> None:
    """Let an input that only casts to float32 read be what they give."""
    widened = Value(state.name, TensorType(ElementType.FLOAT, state.type.shape))
    graph.inputs = [widened if value is state else value for value in graph.inputs]
    for user in state.users():
        graph.replace_value(user.output, widened)
        graph.remove(user)


def _widen_output(graph: Graph, result: Value, real: Value) -> None:
    """Let an output be what it is rounded from."""
    rounding = result.producer
    graph.outputs = [real if value is result else value for value in graph.outputs]
    name, result.name = result.name, graph.unique_name(f"{result.name}__rounded")
    real.name = name
    if rounding is not None and not result.uses:
        graph.remove(rounding)
