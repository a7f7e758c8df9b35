"""Choice of the values whose sums are brought to int8 in fixed point (rule 10 of the numeric contract)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from qglow.core.types import Quantization
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import SameAs, Unify
from qglow.graph.ops.rows import THEMSELVES
from qglow.quantization.choices import Choices


def round_in_fixed_point(graph: Graph, choices: Choices) -> None:
    """Mark the int8 values of which fixed point is chosen, in place.

    Values that data movement connects share their parameters, so that one choice marks all of them. Sums of
    int16 exceed int32, and so they and int16 values stay as they are.
    """
    if not any(choice.fixed_point for choice in (choices.default, *choices.nodes.values())):
        return
    for group in _groups(graph):
        chosen = any(choices.of_value(value).fixed_point for value in group if not value.is_constant)
        if not chosen or any(_exceeds(value.producer) for value in group):
            continue
        for value in group:
            known = value.type.quantization
            assert known is not None
            value.type = replace(value.type, quantization=replace(known, fixed_point=True))


def _groups(graph: Graph) -> list[list[Value]]:
    """int8 values with one scale that are no weights, those together that movement connects."""
    weights = set(_weights(graph))
    group = {value: [value] for value in graph.values() if _is_marked(value) and value not in weights}
    for node in graph.nodes:
        policy = node.operator.policy
        if not isinstance(policy, SameAs | Unify):
            continue
        for value in filter(None, node.inputs):
            if value in group and node.output in group and _is_alike(value, node.output):
                _join(group, value, node.output)
    return list({id(members): members for members in group.values()}.values())


def _join(group: dict[Value, list[Value]], first: Value, second: Value) -> None:
    into, other = group[first], group[second]
    if into is not other:
        into += other
        group.update(dict.fromkeys(other, into))


def _is_marked(value: Value) -> bool:
    known = value.type.quantization
    return known is not None and _is_int8(known) and known != THEMSELVES


def _is_int8(known: Quantization) -> bool:
    return known.axis is None and not known.is_wide


def _is_alike(value: Value, other: Value) -> bool:
    return value.type.quantization == other.type.quantization


def _weights(graph: Graph) -> Iterator[Value]:
    for node in graph.nodes:
        policy = node.operator.accumulate
        weights = None if policy is None else node.operand(policy.w)
        if weights is not None and weights.is_constant:
            yield weights


def _exceeds(node: Node | None) -> bool:
    """Whether a node gives sums of products with int16."""
    if node is None or node.operator.accumulate is None:
        return False
    x = node.operand(node.operator.accumulate.x)
    known = None if x is None else x.type.quantization
    return known is not None and known.is_wide
