"""The attention regions of a graph: its attention blocks, and what residual sums and norms connect to them.

From the blocks a region grows:

- to the queries, keys and values, back to the products with constant weights that give them;
- from what these read, and from what the block gives, along the residual stream: elementwise arithmetic,
  norms and data movement in both directions, up to the products with weights and to activations that clamp,
  and forward means over tokens;
- from what an embedding looks up in a table, in the same way, also where a product widens it later;
- to feed-forward branches: what lies between a few products with weights, of which the first read the stream
  and the last gives to it.

A convolutional stem, head or decoder is beyond the products at the region's border and no part of it. A
residual sum whose branch ends in a convolution over several pixels belongs to a convolutional network, unless
the stream goes through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from qglow.graph.graph import Graph, Node, Value
from qglow.quantization.attention import (
    AttentionBlock,
    activates,
    attention_block,
    averages,
    computed_operands,
    feed_forward,
    gives_reals,
    is_gate,
    is_residual_sum,
    joins_pixels,
    looks_up,
    passes,
    streams,
)

FEWEST_BRANCHES = 2
"""Feed-forward branches behind norms that make a network without attention one of this kind."""
MOST_PRODUCTS = 3
"""Most products with weights, one after the other, in a branch from the stream and back to it."""


class Role(Enum):
    """Role of a node in a region; the text is the subject of a reason why it stays float.

    Rules call them by their names in lower case.
    """

    SUM = "residual sum"
    NORM = "norm"
    SOFTMAX = "masks and softmax of scores"
    SCORES = "product of queries and keys"
    MIXTURE = "product of shares and values"
    PRODUCT = "product of two computed values"
    HEADS = "queries, keys, values and rotary embedding"
    GATE = "activation or gate between products"
    STREAM = "arithmetic of the residual stream"

    @property
    def reason(self) -> str:
        """Reason why such a node stays float."""
        verb = "stay" if self in (Role.SOFTMAX, Role.HEADS) else "stays"
        return f"transformer: {self.value} {verb} float"


@dataclass
class AttentionRegion:
    """All attention regions of a graph together.

    roles: nodes that are no products with weights, and what they are. products: products with constant
    weights that read them or that they read.
    """

    roles: dict[Node, Role] = field(default_factory=dict)
    products: dict[Node, None] = field(default_factory=dict)


def attention_region(graph: Graph) -> AttentionRegion:
    """Return the attention blocks of a graph and what is connected to them; empty where there are none.

    Networks that mix tokens by other means, such as ConvNeXt and PoolFormer, have the same stream with the
    same feed-forward branches, and lose as much by int8: a few of these stand for blocks.
    """
    growth = _Growth(graph)
    branches = []
    for node in graph.nodes:
        core, branch = attention_block(node), feed_forward(node)
        if core is not None:
            growth.take_block(core)
        if branch is not None:
            branches.append(branch)
    if not growth.region.roles and len(branches) >= FEWEST_BRANCHES:
        growth.take_results(branches)
    if growth.begins:
        growth.take_embeddings()
        growth.follow_stream()
        growth.take_branches()
        growth.close()
        growth.take_products()
    return growth.region


def whole_region(graph: Graph) -> AttentionRegion:
    """Return a region of all nodes, as if all of them were connected to attention."""
    region = AttentionRegion()
    for core in filter(None, map(attention_block, graph.nodes)):
        region.roles |= dict.fromkeys(core.products, Role.SCORES) | dict.fromkeys(core.contexts, Role.MIXTURE)
    for node in graph.nodes:
        if node.operator.accumulate is not None:
            region.products[node] = None
        elif gives_reals(node):
            region.roles.setdefault(node, _role_of(node, Role.STREAM))
    return region


class _Growth:
    """A region that grows. stream: values of the residual stream, those of products included."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._stream: dict[Value, None] = {}
        self._waiting: list[Value] = []
        self.region = AttentionRegion()

    def take_block(self, core: AttentionBlock) -> None:
        """Add a block with its heads; what these read, and what it gives, begins the stream."""
        for node in (*core.scores, *core.probabilities):
            self._take(node, Role.SOFTMAX)
        for node in core.products:
            self._take(node, Role.SCORES)
        for node in core.contexts:
            self._take(node, Role.MIXTURE)
        operands = [v for node in (*core.products, *core.contexts) for v in computed_operands(node)]
        self._take_heads([v for v in operands if v.producer not in self.region.roles])
        self._waiting += self._results(core.contexts)

    def take_results(self, values: Iterable[Value]) -> None:
        """Begin the stream with results of branches."""
        self._waiting += values

    @property
    def begins(self) -> bool:
        """Whether there is anything to grow from."""
        return bool(self._waiting)

    def _take_heads(self, values: Iterable[Value]) -> None:
        """Go back from operands of attention products to the products with weights behind them."""
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            node = value.producer
            if node is None or node in self.region.roles:
                continue
            if node.operator.accumulate is not None:
                self._waiting += computed_operands(node)
            elif is_residual_sum(node) and any(map(_from_weights, computed_operands(node))):
                self._waiting.append(value)
            elif streams(node) or (passes(node) and not joins_pixels(node)):
                self._take(node, _role_of(node, Role.HEADS))
                waiting += computed_operands(node)

    def _results(self, contexts: Iterable[Node]) -> Iterator[Value]:
        """Values behind the products with weights that read a block, and what else reads it."""
        waiting = [value for node in contexts for value in node.outputs]
        seen: set[Value] = set()
        while waiting:
            value = waiting.pop()
            if value in seen:
                continue
            seen.add(value)
            for user in value.users():
                if user in self.region.roles:
                    continue
                if user.operator.accumulate is not None:
                    yield from user.outputs
                elif passes(user) and not is_residual_sum(user) and not is_gate(user):
                    self._take(user, Role.HEADS)
                    waiting += user.outputs
                else:
                    yield value

    def take_embeddings(self) -> None:
        """Begin another stream with rows of tables.

        Positions that are added to them are constants of the profiled length, which would have scales of it.
        """
        self._waiting += [node.output for node in self._graph.nodes if looks_up(node)]

    def follow_stream(self) -> None:
        """Follow the residual stream in both directions."""
        while self._waiting:
            value = self._waiting.pop()
            if value in self._stream or value.is_constant or not value.type.is_float:
                continue
            self._stream[value] = None
            producer = value.producer
            if producer is not None and streams(producer) and not activates(producer):
                self._extend(producer)
            for user in value.users():
                if streams(user) or averages(user):
                    self._extend(user)

    def _extend(self, node: Node) -> None:
        self._take(node, _role_of(node, Role.STREAM))
        self._waiting += [*node.outputs, *computed_operands(node)]

    def take_branches(self) -> None:
        """Add what lies between products with weights that read the stream and ones that give to it."""
        for node in self._graph.nodes:
            if node.operator.accumulate is None or node.output not in self._stream:
                continue
            inside = self._branch(node)
            for member in inside or ():
                if member.operator.accumulate is None:
                    self._take(member, _role_of(member, Role.GATE))
                else:
                    self.region.products[member] = None

    def _branch(self, last: Node) -> dict[Node, int] | None:
        """Nodes of a branch that ends in a product, with the products from each on; None if it is none."""
        found = {last: 1}
        waiting, reached = [last], False
        while waiting:
            node = waiting.pop()
            for value in computed_operands(node):
                producer = value.producer
                if value in self._stream or producer in self.region.roles:
                    reached = True
                    continue
                if producer is None or not gives_reals(producer) or producer.operator.hosted is not None:
                    return None
                depth = found[node] + (producer.operator.accumulate is not None)
                if depth > MOST_PRODUCTS:
                    return None
                if found.get(producer, 0) < depth:
                    found[producer] = depth
                    waiting.append(producer)
        return found if reached else None

    def close(self) -> None:
        """Add nodes that read the region and are read by it, such as the means of a norm."""
        added = True
        while added:
            added = False
            for node in self._graph.nodes:
                if node in self.region.roles or node.operator.accumulate is not None or not gives_reals(node):
                    continue
                reads = any(v.producer in self.region.roles for v in computed_operands(node))
                if reads and any(u in self.region.roles for v in node.outputs for u in v.users()):
                    self._take(node, _role_of(node, Role.STREAM))
                    added = True

    def take_products(self) -> None:
        """Add the products with weights around the region."""
        roles = self.region.roles
        for node in self._graph.nodes:
            if node.operator.accumulate is None:
                continue
            reads = any(value.producer in roles for value in computed_operands(node))
            if reads or any(user in roles for user in node.output.users()):
                self.region.products[node] = None

    def _take(self, node: Node, role: Role) -> None:
        self.region.roles.setdefault(node, role)


def _from_weights(value: Value) -> bool:
    """Whether data movement and terms alone lie between a value and a product with weights."""
    producer = value.producer
    while producer is not None and producer.operator.accumulate is None:
        operands = computed_operands(producer)
        moves = producer.operator.kept_operand is not None or producer.operator.additive
        if len(operands) != 1 or not moves:
            return False
        producer = operands[0].producer
    return producer is not None


def _role_of(node: Node, otherwise: Role) -> Role:
    operator = node.operator
    if operator.standardizes:
        return Role.NORM
    if operator.distributes_along(node.input_types()) is not None:
        return Role.SOFTMAX
    if operator.multiplies_activations:
        return Role.PRODUCT
    if otherwise is Role.STREAM and is_residual_sum(node):
        return Role.SUM
    return otherwise
