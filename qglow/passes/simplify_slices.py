"""Slices and concatenations that undo or repeat each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Refused
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import Operator
from qglow.graph.ops.movement import Slice
from qglow.graph.ops.shape import Concat
from qglow.graph.rewriting import (
    Outcome,
    RewritePass,
    change,
    operand,
    private,
    producer_of,
    remove_unread,
)


@dataclass(frozen=True)
class SimplifySlices(RewritePass):
    """Slice of Slice, Slice of Concat, Concat of Concat, of slices that lie side by side, of empty slices."""

    name: ClassVar[str] = "simplify-slices"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Simplify one Slice or Concat with the one before it."""
        rule = _RULES.get(type(node.operator))
        if rule is None or any(v is not None and v.type.is_quantized for v in node.inputs):
            return None
        return rule(node, graph)


def _slice(node: Node, graph: Graph) -> Outcome:
    source = operand(node, 0).producer
    if source is None:
        return None
    if isinstance(source.operator, Slice):
        return _slice_of_slice(node, graph, source)
    return _slice_of_concat(node, graph, source) if isinstance(source.operator, Concat) else None


def _slice_of_slice(node: Node, graph: Graph, inner: Node) -> Outcome:
    first, second = inner.operator, node.operator
    assert isinstance(first, Slice) and isinstance(second, Slice)
    starts, ends, steps, shape = [], [], [], operand(inner, 0).type.shape
    for axis, extent in enumerate(node.output.type.shape):
        # An empty slice may begin behind the end.
        start = min(first.starts[axis] + second.starts[axis] * first.steps[axis], shape[axis])
        step = first.steps[axis] * second.steps[axis]
        starts.append(start)
        ends.append(start + (extent - 1) * step + 1 if extent else start)
        steps.append(step)
    change(node, Slice(tuple(starts), tuple(ends), tuple(steps)), [operand(inner, 0)])
    remove_unread(graph, inner)
    return f"reads past Slice '{inner.name}'"


def _slice_of_concat(node: Node, graph: Graph, concat: Node) -> Outcome:
    operator, joined = node.operator, concat.operator
    assert isinstance(operator, Slice) and isinstance(joined, Concat)
    axis = joined.axis % len(operator.starts)
    offset = 0
    for value in concat.inputs:
        assert value is not None
        end = offset + value.type.shape[axis]
        if offset <= operator.starts[axis] < operator.ends[axis] <= end:
            starts, ends = list(operator.starts), list(operator.ends)
            starts[axis] -= offset
            ends[axis] -= offset
            change(node, Slice(tuple(starts), tuple(ends), operator.steps), [value])
            remove_unread(graph, concat)
            return f"reads %{value.name} past Concat '{concat.name}'"
        offset = end
    return Refused(f"it takes from several operands of Concat '{concat.name}'")


def _concat(node: Node, graph: Graph) -> Outcome:
    return _concat_of_nothing(node, graph) or _concat_of_concat(node, graph) or _concat_of_slices(node, graph)


def _concat_of_nothing(node: Node, graph: Graph) -> Outcome:
    """Slices without elements are left out, as what a rotary embedding of the whole head passes on.

    Other operands without elements stay: an empty cache is one in this shape alone, and its values have the
    parameters of the Concat in every shape.
    """
    empty = {value for value in node.inputs if value is not None and _is_nothing(value)}
    rest = [value for value in node.inputs if value not in empty]
    if not empty or not rest:
        return None
    change(node, node.operator, rest)
    for value in empty:
        assert value.producer is not None
        remove_unread(graph, value.producer)
    return f"leaves out {', '.join(sorted(f'%{value.name}' for value in empty))}, without elements"


def _is_nothing(value: Value) -> bool:
    cut = producer_of(value, Slice)
    return cut is not None and value.type.size == 0 and operand(cut, 0).type.size > 0


def _concat_of_concat(node: Node, graph: Graph) -> Outcome:
    axis = _axis(node)
    refusal: Refused | None = None
    for index, value in enumerate(node.inputs):
        inner = None if value is None else producer_of(value, Concat)
        if inner is None or _axis(inner) != axis:
            continue
        found = private(graph, inner.output)
        if found is None and node.inputs.count(value) > 1:
            found = Refused(f"%{inner.output.name} is joined twice")
        if found is None:
            change(node, node.operator, [*node.inputs[:index], *inner.inputs, *node.inputs[index + 1 :]])
            graph.remove(inner)
            return f"takes in Concat '{inner.name}'"
        refusal = refusal or found
    return refusal


def _concat_of_slices(node: Node, graph: Graph) -> Outcome:
    """Two neighbours among the operands that are neighbours in one value are one slice of it."""
    axis = _axis(node)
    for index in range(len(node.inputs) - 1):
        first, second = (producer_of(operand(node, index + i), Slice) for i in (0, 1))
        if first is None or second is None or operand(first, 0) is not operand(second, 0):
            continue
        union = _union(first.operator, second.operator, axis)
        if union is not None:
            merged = _whole_or_slice(node, graph, operand(first, 0), union, index)
            change(node, node.operator, [*node.inputs[:index], merged, *node.inputs[index + 2 :]])
            for part in dict.fromkeys((first, second)):
                remove_unread(graph, part)
            return f"%{first.output.name} and %{second.output.name} lie side by side: one slice"
    return None


def _whole_or_slice(node: Node, graph: Graph, source: Value, union: Slice, index: int) -> Value:
    (kind,) = union.infer([source.type])
    if kind == source.type:
        return source
    merged = Value(graph.unique_name(f"{node.output.name}.part{index}"), kind)
    name = graph.unique_name(f"{node.name}.part{index}")
    graph.insert_before(node, Node(name, union, [source], [merged]))
    return merged


def _union(first: Operator, second: Operator, axis: int) -> Slice | None:
    """The slice that holds both, where the second begins where the first ends."""
    assert isinstance(first, Slice) and isinstance(second, Slice)
    if first.steps != second.steps or first.steps[axis] != 1 or first.ends[axis] != second.starts[axis]:
        return None
    others = [i for i in range(len(first.starts)) if i != axis]
    if any((first.starts[i], first.ends[i]) != (second.starts[i], second.ends[i]) for i in others):
        return None
    ends = list(first.ends)
    ends[axis] = second.ends[axis]
    return Slice(first.starts, tuple(ends), first.steps)


def _axis(node: Node) -> int:
    assert isinstance(node.operator, Concat)
    return node.operator.axis % len(node.output.type.shape)


_RULES: dict[type[Operator], Callable[[Node, Graph], Outcome]] = {Slice: _slice, Concat: _concat}
