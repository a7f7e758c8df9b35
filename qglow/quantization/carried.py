"""Keep in float what is carried on: from call to call by recurrent layers, from round to round by loops."""

from __future__ import annotations

from collections.abc import Iterable

from qglow.graph.graph import Graph, Node, Value
from qglow.quantization.choices import Choices
from qglow.quantization.placement import FloatReasons, handles_reals
from qglow.recipe.schema import Recipe

_ADDED_UP = "it computes what a loop carries from round to round, where errors of int8 would add up"
_MOVED = "it moves what a recurrent layer carries from call to call, where errors of int8 would add up"
_FLOAT_STATE = "it moves states of a recurrent layer that computes them in float"
_PASSED_ON = "it moves inputs of the model to its outputs, which int8 would round"


def keep_moved_float(graph: Graph, recipe: Recipe, reasons: FloatReasons) -> None:
    """Add to `reasons` what moves carried states and, where a caller gives floats, inputs to outputs."""
    keep_carried_float(graph, reasons)
    if recipe.io == "float" and not recipe.assert_all_quantized:
        keep_passed_on_float(graph, reasons)


def keep_carried_float(graph: Graph, reasons: FloatReasons) -> None:
    """Add to `reasons` the data movement between what nodes carry and the graph's inputs and outputs.

    A program that is called again with the states that it gave would round them in every call, which no
    comparison of single calls shows. So are the hidden states of a layer that is float.
    """
    inputs, outputs = set(graph.inputs), set(graph.outputs)
    for node in graph.nodes:
        policy = node.operator.recurs
        begun = None if policy is None else node.operand(policy.carried)
        if policy is None or begun is None:
            continue
        moved = [*_from_inputs(begun, inputs), *_to_outputs(node.outputs[1], outputs)]
        for each in filter(handles_reals, moved):
            reasons.setdefault(each, _MOVED)
        hidden = node.operand(policy.state)
        if node in reasons and hidden is not None:
            taken = filter(_moves, node.output.users())
            for each in (*_from_inputs(hidden, inputs), *taken, *_to_outputs(node.output, outputs)):
                reasons.setdefault(each, _FLOAT_STATE)


def keep_passed_on_float(graph: Graph, reasons: FloatReasons) -> None:
    """Add to `reasons` what moves inputs alone to outputs, such as the last frames that a stream keeps."""
    given = set(graph.inputs)
    for each in graph.nodes:
        if _moves(each) and all(value in given or value.is_constant for value in _operands(each)):
            given.update(each.outputs)
    left = [value for value in graph.outputs if value in given]
    while left:
        node = left.pop().producer
        if node is None or node in reasons or not handles_reals(node):
            continue
        reasons[node] = _PASSED_ON
        left += [value for value in _operands(node) if value in given]


def _operands(node: Node) -> list[Value]:
    return [value for value in node.inputs if value is not None]


def keep_rounds_float(results: Iterable[Value], choices: Choices, reasons: FloatReasons) -> None:
    """Add to `reasons` the light nodes that compute what a loop carries, from the last products on.

    results: what a round gives to the next one. A cell state in int8 would be rounded as often as there are
    rounds. Products read what they take in int8 all the same, and int16 is fine enough.
    """
    left, seen = list(results), set[Node]()
    while left:
        node = left.pop().producer
        if node is None or node in seen or not node.operator.is_light:
            continue
        seen.add(node)
        if handles_reals(node) and not choices.of_node(node).wide:
            reasons.setdefault(node, _ADDED_UP)
        left += [value for value in node.inputs if value is not None]


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
