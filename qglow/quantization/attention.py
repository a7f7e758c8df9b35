"""Attention blocks of a graph and feed-forward branches behind norms, recognised by structure.

A block is a softmax over the last axis, of a product of two computed values, whose result multiplies a
computed value. Light operators and data movement may lie between: scales, masks, transposes, repeated heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from qglow.graph.graph import Node, Value

_UNBOUNDED = (-math.inf, math.inf)


def gives_reals(node: Node) -> bool:
    """Whether a node gives float values and computes with them."""
    return bool(node.outputs) and node.outputs[0].type.is_float and bool(computed_operands(node))


def is_residual_sum(node: Node) -> bool:
    """Whether a node adds two computed values of the shape of its result."""
    return node.operator.additive and _joins(node)


def is_gate(node: Node) -> bool:
    """Whether a node multiplies two computed values of the shape of its result."""
    return node.operator.multiplicative and _joins(node)


def _joins(node: Node) -> bool:
    operands = computed_operands(node)
    return len(operands) == 2 and all(value.type.shape == node.output.type.shape for value in operands)


@dataclass(frozen=True)
class AttentionBlock:
    """A block: its scores between both products, the products, and what lies between them and `results`."""

    scores: dict[Node, None]
    products: dict[Node, None]
    probabilities: dict[Node, None]
    contexts: dict[Node, None]


def attention_block(softmax: Node) -> AttentionBlock | None:
    """Return the block around a softmax; None if the node is none, or one of no attention."""
    if not softmax.inputs or softmax.inputs[0] is None or len(softmax.outputs) != 1:
        return None
    axis = softmax.operator.distributes_along(softmax.input_types())
    if axis is None or axis != len(softmax.output.type.shape) - 1:
        return None
    scores: dict[Node, None] = {softmax: None}
    products: dict[Node, None] = {}
    waiting: list[Value] = [softmax.inputs[0]]
    while waiting:
        producer = waiting.pop().producer
        if producer is None or producer in scores or producer in products:
            continue
        if _multiplies_computed(producer):
            products[producer] = None
        elif passes(producer):
            scores[producer] = None
            waiting += computed_operands(producer)
    probabilities: dict[Node, None] = {}
    contexts: dict[Node, None] = {}
    waiting = [softmax.output]
    while waiting:
        for user in waiting.pop().users():
            if _multiplies_computed(user):
                contexts[user] = None
            elif user not in probabilities and passes(user):
                probabilities[user] = None
                waiting += user.outputs
    if not products or not contexts:
        return None
    leading = _leading_to(probabilities, contexts)
    return AttentionBlock(scores, products, leading, contexts)


def _leading_to(nodes: Iterable[Node], ends: dict[Node, None]) -> dict[Node, None]:
    """Return those of `nodes`, which follow one softmax, whose results reach one of `ends`."""
    found: dict[Node, None] = {}
    for node in reversed(list(nodes)):
        if any(user in ends or user in found for value in node.outputs for user in value.users()):
            found[node] = None
    return found


def _multiplies_computed(node: Node) -> bool:
    return node.operator.multiplies_activations and len(computed_operands(node)) == 2


def computed_operands(node: Node) -> list[Value]:
    """The float operands that are no constants."""
    return [v for v in node.inputs if v is not None and not v.is_constant and v.type.is_float]


def passes(node: Node) -> bool:
    """Whether a node does elementwise work, selects, or moves elements; all of these give floats."""
    operator = node.operator
    if operator.accumulate is not None or not gives_reals(node) or _slides(node):
        return False
    return operator.elementwise or operator.moves_elements or operator.unifies or _scales_channels(node)


def _scales_channels(node: Node) -> bool:
    """Whether a node multiplies and shifts channels by constants, and sums no products."""
    operator = node.operator
    return operator.filters is None and operator.constants_axis(node.input_types()) is not None


def _slides(node: Node) -> bool:
    return node.operator.window(node.input_types()) is not None


def streams(node: Node) -> bool:
    """Whether the residual stream goes through a node: a norm, or what passes and does not clamp."""
    if node.operator.standardizes:
        return True
    return passes(node) and node.operator.bounds == _UNBOUNDED and not joins_pixels(node)


def averages(node: Node) -> bool:
    """Whether a node takes means over whole axes, as a head does of the tokens."""
    types = node.input_types()
    return gives_reals(node) and not _slides(node) and node.operator.summed_elements(types) > 0


def joins_pixels(node: Node) -> bool:
    """Whether a node adds what a convolution over several pixels gives, and not to a product of rows."""
    if not is_residual_sum(node):
        return False
    operands = computed_operands(node)
    windows = [_window_behind(value) for value in operands]
    # What others read too is no end of a branch but where it begins, such as the patches of a stem.
    ends = [size > 1 and len(value.users()) == 1 for size, value in zip(windows, operands, strict=True)]
    return any(ends) and all(size != 1 for size in windows)


def _window_behind(value: Value) -> int:
    """Largest extent of the window of the product that gives a value, 1 without a window; 0 for no product.

    Light operators may lie between.
    """
    producer = value.producer
    while producer is not None and producer.operator.accumulate is None:
        operands = computed_operands(producer)
        if len(operands) != 1 or not passes(producer):
            return 0
        producer = operands[0].producer
    if producer is None:
        return 0
    window = producer.operator.window(producer.input_types())
    return 1 if window is None else max(window.kernel)


def activates(node: Node) -> bool:
    """Whether a node applies a function of one variable to a product with weights."""
    if not node.operator.is_tabulated:
        return False
    producer = computed_operands(node)[0].producer
    while producer is not None and producer.operator.kept_operand is not None:
        kept = producer.inputs[producer.operator.kept_operand]
        producer = None if kept is None else kept.producer
    return producer is not None and producer.operator.accumulate is not None


def feed_forward(norm: Node) -> Value | None:
    """Result of the branch norm, product, activation, product, as transformers and their kin have it.

    Data movement, scales of the norm by channel, and norms of what was activated, may lie between, and a
    residual sum reads the result; None where a node begins no such branch.
    """
    if not norm.operator.standardizes:
        return None
    for first in _products_behind([norm.output], moved=True):
        activated = [user for value in _moved_to(first.output) for user in value.users() if activates(user)]
        for last in _products_behind([node.output for node in activated], moved=False):
            if _is_added(last.output):
                return last.output
    return None


def _is_added(value: Value) -> bool:
    """Whether a residual sum reads a value, past movement and factors."""

    def goes_on(user: Node) -> bool:
        return passes(user) and len(computed_operands(user)) == 1 and not activates(user)

    return any(map(is_residual_sum, _readers([value], goes_on)))


def _products_behind(values: Iterable[Value], moved: bool) -> Iterator[Node]:
    """Products with weights that read values, past what moves and scales them, or `passes` if not `moved`."""

    def goes_on(user: Node) -> bool:
        if user.operator.accumulate is not None:
            return False
        moves = user.operator.kept_operand is not None
        return moves or _scales_channels(user) or (not moved and passes(user))

    return (user for user in _readers(values, goes_on) if user.operator.accumulate is not None)


def _readers(values: Iterable[Value], goes_on: Callable[[Node], bool]) -> Iterator[Node]:
    """Nodes that read values, and results of those of them that the search goes on behind."""
    waiting, seen = list(values), set[Value]()
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        for user in value.users():
            yield user
            if goes_on(user):
                waiting += user.outputs


def _moved_to(value: Value) -> list[Value]:
    """A value with those that data movement alone makes of it."""
    found = [value]
    for each in found:
        found += [v for user in each.users() if user.operator.kept_operand is not None for v in user.outputs]
    return found


def looks_up(node: Node) -> bool:
    """Whether a node looks up rows of a constant table of floats, as an embedding does."""
    table = node.inputs[0] if node.operator.looks_up_rows else None
    places = node.inputs[1] if table is not None else None
    return table is not None and table.is_constant and table.type.is_float and _is_computed(places)


def _is_computed(value: Value | None) -> bool:
    return value is not None and not value.is_constant
