"""Keep in float what recurrent layers carry from call to call, in models that take their states again."""

from __future__ import annotations

from qglow.graph.graph import Graph, Node, Value
from qglow.quantization.placement import FloatReasons, handles_reals

_MOVED = "it moves what a recurrent layer carries from call to call, where errors of int8 would add up"


def keep_carried_float(graph: Graph, reasons: FloatReasons) -> None:
    """Add to `reasons` the data movement between what nodes carry and the graph's inputs and outputs.

    A program that is called again with the states that it gave would round them in every call, which no
    comparison of single calls shows.
    """
    inputs, outputs = set(graph.inputs), set(graph.outputs)
    for node in graph.nodes:
        policy = node.operator.recurs
        begun = None if policy is None else node.operand(policy.carried)
        if begun is None:
            continue
        moved = [*_from_inputs(begun, inputs), *_to_outputs(node.outputs[1], outputs)]
        for each in filter(handles_reals, moved):
            reasons.setdefault(each, _MOVED)


def _from_inputs(value: Value, inputs: set[Value]) -> list[Node]:
    """Nodes that move elements of inputs to a value, none where it is computed."""
    if value.producer is None or not _moves(value.producer):
        return []
    given = [each for each in value.producer.inputs if each is not None]
    before = [node for each in given for node in _from_inputs(each, inputs)]
    return [value.producer, *before] if before or inputs.intersection(given) else []


def _to_outputs(value: Value, outputs: set[Value]) -> list[Node]:
    """Nodes that move elements of a value to outputs."""
    found = []
    for node in filter(_moves, value.users()):
        behind = _to_outputs(node.output, outputs)
        if behind or node.output in outputs:
            found += [node, *behind]
    return found


def _moves(node: Node) -> bool:
    return node.operator.kept_operand is not None or node.operator.unifies
