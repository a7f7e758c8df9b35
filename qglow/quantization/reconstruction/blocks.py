"""Rounding of weights in blocks anew, by the inputs that their products have on calibration data.

Weights of experts are rounded by the rows that each expert gets; those of one without rows stay. Scales and
zero points stay. Weights are rounded one after the other as in `feedback`, those of inputs with the largest
second moments first; blocks stay where they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qglow.core.interruption import Interruption
from qglow.core.passes import PassLog
from qglow.core.types import Array
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.rewriting import new_constant, operand
from qglow.graph.traits import BlockForm
from qglow.graph.verifier import verify_graph
from qglow.numerics.block_codes import spread
from qglow.numerics.blocks import apart, middle, pack, unpack
from qglow.numerics.experts import chosen_experts
from qglow.numerics.half import widen
from qglow.quantization.blocks import has_matrices
from qglow.quantization.experts import INDICES
from qglow.quantization.pipeline import QuantizedGraph
from qglow.quantization.reconstruction.feedback import BLOCK, inverse_factor
from qglow.quantization.reconstruction.moments import shrunk
from qglow.quantization.reconstruction.rounding import LONGEST_WINDOW, MEMORY, PASS, Tensors

_FLOAT64 = 8

Key = tuple[str, str, int | None]
"""Names of rows and of their experts, if they have such, and the number of an expert."""


@dataclass(frozen=True)
class RoundedProduct:
    """A product with weights in blocks, and the float weights [K, N] that they are rounded from.

    expert: where the node has matrices of several, the one of the weights.
    """

    node: Node
    form: BlockForm
    weights: Array
    expert: int | None = None

    @property
    def rows(self) -> Value:
        """The float rows that it multiplies, or that its integers are made of."""
        scales = self.node.operand("row_scales")
        producer = None if scales is None else scales.producer
        return operand(self.node) if producer is None else operand(producer)

    @property
    def experts(self) -> Value | None:
        """The experts of rows, for a product that has several."""
        return None if self.expert is None else self.node.operand(INDICES)

    @property
    def columns(self) -> slice:
        """Columns of the weights in those of the node."""
        width = self.weights.shape[1]
        return slice(None) if self.expert is None else slice(self.expert * width, (self.expert + 1) * width)

    @property
    def key(self) -> Key:
        """Names of the rows and of their experts, and the number of the expert: equal for equal moments."""
        return self.rows.name, "" if self.experts is None else self.experts.name, self.expert

    def own_rows(self, found: Mapping[Value, Array]) -> Array:
        """Rows float64 [M, K] that meet the weights."""
        rows = found[self.rows].reshape(-1, len(self.weights)).astype(np.float64)
        if self.experts is None:
            return rows
        count = operand(self.node, 2).type.shape[1] // self.weights.shape[1]
        return np.asarray(rows[chosen_experts(found[self.experts], count) == self.expert])

    @property
    def bytes(self) -> int:
        """Bytes of the second moments of its inputs."""
        return _FLOAT64 * len(self.weights) ** 2


def block_products_of(quantized: QuantizedGraph) -> list[Node]:
    """The nodes that `round_blocks` considers."""
    return [product.node for product in products_of(quantized.graph, quantized.source)]


def round_blocks(
    quantized: QuantizedGraph,
    tensors: Tensors,
    log: PassLog | None = None,
    advance: Callable[[int], None] = lambda nodes: None,
    interruption: Interruption | None = None,
) -> QuantizedGraph:
    """Round the weights of products in blocks with feedback of errors; returns a new graph.

    A column changes only if its expected squared error falls. advance: is called with the number of nodes
    done. After an interruption no further node is begun.
    """
    log, interruption = log or PassLog(), interruption or Interruption()
    log.pass_name = PASS
    graph = quantized.graph.copy()
    products = list(rounded_products(graph, quantized.source, log, advance))
    rounding = FeedbackRounding(graph)
    with interruption.during("rounding weights"):
        for turn in turns_of(products):
            rounding.round(turn, moments_of(graph, turn, tensors), advance)
    rounding.tell(log)
    verify_graph(graph, "after rounding weights in blocks anew")
    report = replace(quantized.report, log=(*quantized.report.log, *log.entries))
    return replace(quantized, graph=graph, report=report)


def feedback_in_blocks(weights: Array, scales: Array, zeros: Array, bits: int, moments: Array) -> Array:
    """Codes uint8 [K, N] of weights, scales and zero points [K, N], by second moments [K, K] of inputs."""
    order = np.argsort(-np.diagonal(moments), kind="stable")
    left = weights[order].astype(np.float64)
    steps, points = scales[order].astype(np.float64), zeros[order].astype(np.float64)
    factor = inverse_factor(moments[None][:, order][:, :, order])[0]
    codes, largest = np.empty_like(left), (1 << bits) - 1
    for start in range(0, len(left), BLOCK):
        stop = min(start + BLOCK, len(left))
        errors = np.empty((stop - start, left.shape[1]))
        for row in range(start, stop):
            codes[row] = np.clip(np.rint(left[row] / steps[row]) + points[row], 0, largest)
            error = (left[row] - (codes[row] - points[row]) * steps[row]) / factor[row, row]
            left[row:stop] -= factor[row, row:stop, None] * error
            errors[row - start] = error
        left[stop:] -= factor[start:stop, stop:].T @ errors
    back = np.argsort(order)
    return np.asarray(codes[back].astype(np.uint8))


def rounded_products(
    graph: Graph, source: Graph, log: PassLog, advance: Callable[[int], None]
) -> Iterator[RoundedProduct]:
    """Yield the products that can be rounded anew; tell `log` and `advance` of those that are too long."""
    for product in products_of(graph, source):
        if len(product.weights) > LONGEST_WINDOW:
            log.refused(product.node.name, f"each result is a sum over more than {LONGEST_WINDOW} inputs")
            advance(1)
        else:
            yield product


def products_of(graph: Graph, source: Graph) -> Iterator[RoundedProduct]:
    """The products of a quantized graph, with their weights in the float graph that it stands for."""
    floats = {node.name: node for node in source.nodes}
    for node in graph.nodes:
        twin, form = floats.get(node.name), node.operator.weight_blocks
        if form is None or twin is None or not (twin.operator.accumulate or has_matrices(twin)):
            continue
        weights = operand(twin, 1).data
        shape = (operand(node).type.shape[-1], operand(node, 2).type.shape[1])
        if weights is None or weights.shape != shape:
            continue
        if not has_matrices(twin):
            yield RoundedProduct(node, form, weights)
            continue
        width = twin.output.type.shape[-1]
        for number in range(shape[1] // width):
            own = weights[:, number * width : (number + 1) * width]
            yield RoundedProduct(node, form, own, number)


def turns_of(products: Sequence[RoundedProduct]) -> Iterator[list[RoundedProduct]]:
    """Yield the products in their order, as many at a time as have moments of at most `MEMORY` bytes."""
    turn: list[RoundedProduct] = []
    for product in products:
        if turn and sum(each.bytes for each in turn) + product.bytes > MEMORY:
            yield turn
            turn = []
        turn.append(product)
    if turn:
        yield turn


def moments_of(graph: Graph, turn: Sequence[RoundedProduct], tensors: Tensors) -> dict[Key, Array]:
    """Second moments [K, K] of the inputs of products, by their keys; as `shrunk` gives them.

    An expert that gets no rows has none.
    """
    products = {product.key: product for product in turn}
    read = (value for product in turn for value in (product.rows, product.experts) if value is not None)
    values = list(dict.fromkeys(read))
    sums = {key: np.zeros((len(product.weights),) * 2) for key, product in products.items()}
    counts = dict.fromkeys(sums, 0)
    for found in tensors(graph, values):
        for key, product in products.items():
            rows = product.own_rows(found)
            sums[key] += rows.T @ rows
            counts[key] += len(rows)
    return {key: shrunk(moments, counts[key]) for key, moments in sums.items() if counts[key] or not key[1]}


@dataclass
class _Result:
    """Numbers of weights of a node and of those that changed, and squared errors before and after."""

    changed: int = 0
    weights: int = 0
    before: float = 0.0
    after: float = 0.0

    def add(self, other: _Result) -> None:
        """Add the result of another part of the weights."""
        self.changed += other.changed
        self.weights += other.weights
        self.before += other.before
        self.after += other.after

    def __str__(self) -> str:
        both = min(self.before, self.after)
        gain = 10 * math.log10(self.before / self.after) if both > 0.0 else 0.0
        return (
            f"{self.changed} of {self.weights} weights not to the nearest integer: the squared error that "
            f"rounding adds falls by {gain:.1f} dB"
        )


class FeedbackRounding:
    """Rounding with feedback of products of a graph, in turns that may have some of the experts of a node."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._results: dict[Node, _Result] = {}

    def round(
        self,
        products: Sequence[RoundedProduct],
        moments: Mapping[Key, Array],
        advance: Callable[[int], None],
    ) -> None:
        """Round products with these moments of their inputs; those without any stay as they are.

        An interruption keeps what is done.
        """
        changed: dict[Node, Array] = {}
        try:
            for product in products:
                if product.key in moments:
                    done = self._results.setdefault(product.node, _Result())
                    done.add(_round(product, moments[product.key], changed))
                advance(1)
        finally:
            for node, packed in changed.items():
                made = new_constant(self._graph, operand(node, 1).name, packed)
                node.inputs = (node.inputs[0], made, *node.inputs[2:])

    def tell(self, log: PassLog) -> None:
        """Tell a log what was changed in each node."""
        for node, done in self._results.items():
            log.applied(node.name, str(done), exact=False)


def _round(product: RoundedProduct, moments: Array, changed: dict[Node, Array]) -> _Result:
    """Round the weights of a product into the packed codes of its node, copies of which are in `changed`."""
    node, form, weights = product.node, product.form, product.weights.astype(np.float64)
    packed = changed.setdefault(node, np.array(operand(node, 1).data))
    columns, given = product.columns, node.operand("zero_points")
    before = unpack(packed[:, columns], form.bits, len(weights))
    scales = widen(np.asarray(operand(node, 2).data))
    zeros = None if given is None else apart(np.asarray(given.data), form.bits, len(scales))[:, columns]
    blocks = RoundedBlocks.of(before, scales[:, columns], zeros, form)
    rounded = rounded_with_feedback(blocks, weights, form.bits, moments)
    errors = [float(squared_errors(each, weights, moments).sum()) for each in (blocks, rounded)]
    packed[:, columns] = pack(rounded.codes, form.bits)
    return _Result(int(np.count_nonzero(rounded.codes != before)), before.size, *errors)


@dataclass(frozen=True)
class RoundedBlocks:
    """Weights in blocks: codes uint8, steps and zero points of every weight, all [K, N]."""

    codes: Array
    steps: Array
    points: Array

    @staticmethod
    def of(codes: Array, scales: Array, zeros: Array | None, form: BlockForm) -> RoundedBlocks:
        """Scales float32 and zero points uint8 [blocks, N] or None, for codes of a form."""
        depth, centre = len(codes), np.full(scales.shape, middle(form.bits), np.uint8)
        points = spread(centre if zeros is None else zeros, form.block, depth)
        return RoundedBlocks(codes, spread(scales, form.block, depth), points)


def squared_errors(blocks: RoundedBlocks, weights: Array, moments: Array) -> Array:
    """Squared errors [N] of products with weights [K, N], for second moments [K, K] of inputs."""
    error = weights - (blocks.codes.astype(np.float64) - blocks.points) * blocks.steps
    return np.asarray(np.sum((moments @ error) * error, axis=0))


def rounded_with_feedback(blocks: RoundedBlocks, weights: Array, bits: int, moments: Array) -> RoundedBlocks:
    """The blocks with codes by `feedback_in_blocks` in the columns whose error falls."""
    codes = feedback_in_blocks(weights, blocks.steps, blocks.points, bits, moments)
    tried = replace(blocks, codes=codes)
    better = squared_errors(tried, weights, moments) < squared_errors(blocks, weights, moments)
    return replace(blocks, codes=np.where(better, codes, blocks.codes))
