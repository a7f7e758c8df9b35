"""Rounding of weights in blocks anew, by the inputs that their products have on calibration data.

Scales and zero points stay. Weights are rounded one after the other as in `feedback`, those of inputs with
the largest second moments first; blocks stay where they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
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
from qglow.numerics.half import widen
from qglow.quantization.pipeline import QuantizedGraph
from qglow.quantization.reconstruction.feedback import BLOCK, inverse_factor
from qglow.quantization.reconstruction.moments import shrunk
from qglow.quantization.reconstruction.rounding import LONGEST_WINDOW, MEMORY, PASS, Tensors

_FLOAT64 = 8


@dataclass(frozen=True)
class RoundedProduct:
    """A product with weights in blocks, and the float weights [K, N] that they are rounded from."""

    node: Node
    form: BlockForm
    weights: Array

    @property
    def rows(self) -> Value:
        """The float rows that it multiplies, or that its integers are made of."""
        scales = self.node.operand("row_scales")
        producer = None if scales is None else scales.producer
        return operand(self.node) if producer is None else operand(producer)

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
    with interruption.during("rounding weights"):
        for turn in turns_of(products):
            moments = moments_of(graph, turn, tensors)
            for product in turn:
                _round(graph, product, moments[product.rows.name], log)
                advance(1)
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
        if form is None or twin is None or twin.operator.accumulate is None:
            continue
        weights = operand(twin, 1).data
        shape = (operand(node).type.shape[-1], operand(node, 2).type.shape[1])
        if weights is not None and weights.shape == shape:
            yield RoundedProduct(node, form, weights)


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


def moments_of(graph: Graph, turn: Sequence[RoundedProduct], tensors: Tensors) -> dict[str, Array]:
    """Second moments [K, K] of the inputs of products, by name of the input; as `shrunk` gives them."""
    values = list(dict.fromkeys(product.rows for product in turn))
    sums = {value.name: np.zeros((value.type.shape[-1],) * 2) for value in values}
    counts = dict.fromkeys(sums, 0)
    for found in tensors(graph, values):
        for value in values:
            rows = found[value].reshape(-1, value.type.shape[-1]).astype(np.float64)
            sums[value.name] += rows.T @ rows
            counts[value.name] += len(rows)
    return {name: shrunk(moments, counts[name]) for name, moments in sums.items()}


def _round(graph: Graph, product: RoundedProduct, moments: Array, log: PassLog) -> None:
    node, form, weights = product.node, product.form, product.weights.astype(np.float64)
    before = unpack(np.asarray(operand(node, 1).data), form.bits, len(weights))
    given = node.inputs[3] if len(node.inputs) > 3 else None
    scales = widen(np.asarray(operand(node, 2).data))
    zeros = None if given is None else apart(np.asarray(given.data), form.bits, len(scales))
    blocks = RoundedBlocks.of(before, scales, zeros, form)
    rounded = rounded_with_feedback(blocks, weights, form.bits, moments)
    errors = [float(squared_errors(each, weights, moments).sum()) for each in (blocks, rounded)]
    packed = new_constant(graph, operand(node, 1).name, pack(rounded.codes, form.bits))
    node.inputs = (node.inputs[0], packed, *node.inputs[2:])
    gain = 10 * math.log10(errors[0] / errors[1]) if min(errors) > 0.0 else 0.0
    changed = int(np.count_nonzero(rounded.codes != before))
    log.applied(
        node.name,
        f"{changed} of {before.size} weights not to the nearest integer: the squared error that rounding "
        f"adds falls by {gain:.1f} dB",
        exact=False,
    )


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
