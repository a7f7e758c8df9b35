"""Scaling of inputs of products with weights in blocks, so that weights of large inputs are rounded finer.

Each element of an input is divided by a factor, and the weights that read it are multiplied by it, which
leaves the products as they are. Weights of large inputs are then larger beside the step of their block, and
rounding them costs less. Factors are those of J. Lin et al., "AWQ: Activation-aware Weight Quantization for
LLM Compression and Acceleration" (MLSys 2024): the size that an element has over the samples to a power from
a grid, of which the one with the least expected squared error of the products is taken.
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
from qglow.graph.verifier import verify_graph
from qglow.numerics.block_rounding import quantize_blocks
from qglow.numerics.blocks import pack
from qglow.numerics.half import widen
from qglow.quantization.pipeline import QuantizedGraph
from qglow.quantization.reconstruction.blocks import (
    FeedbackRounding,
    RoundedBlocks,
    RoundedProduct,
    moments_of,
    rounded_products,
    rounded_with_feedback,
    squared_errors,
    turns_of,
)
from qglow.quantization.reconstruction.rounding import Tensors
from qglow.quantization.scaled_inputs import row_readers, scale_input

PASS = "scale-inputs"
POWERS = tuple(index / 10 for index in range(11))
LARGEST_FACTOR = 2.0**10
"""Largest factor of an element, up or down; one that would need more hardly matters."""


@dataclass(frozen=True)
class _Rounded:
    """Weights of a product as integers: blocks, and what the operator stores of them."""

    blocks: RoundedBlocks
    scales: Array
    zeros: Array | None


def scale_inputs(
    quantized: QuantizedGraph,
    tensors: Tensors,
    feedback: bool,
    log: PassLog | None = None,
    advance: Callable[[int], None] = lambda nodes: None,
    interruption: Interruption | None = None,
) -> QuantizedGraph:
    """Scale inputs of products with weights in blocks, and round the weights anew; returns a new graph.

    feedback: whether weights are rounded one after the other, each making up for the errors before it; else
    to the nearest. Inputs of experts are not scaled. advance: is called with the number of products done.
    After an interruption no further input is begun. Inputs that no factor improves stay as they are.
    """
    log, interruption = log or PassLog(), interruption or Interruption()
    log.pass_name = PASS
    graph = quantized.graph.copy()
    products = list(rounded_products(graph, quantized.source, log, advance))
    rounding = FeedbackRounding(graph)
    with interruption.during("scaling inputs of products"):
        for turn in turns_of(products):
            moments = moments_of(graph, turn, tensors)
            several = [product for product in turn if product.expert is not None]
            rounding.round(several, moments if feedback else {}, advance)
            for rows, readers in _by_input([product for product in turn if product.expert is None]):
                _scale(graph, rows, readers, moments[readers[0].key], feedback, log)
                advance(len(readers))
    rounding.tell(log)
    verify_graph(graph, "after scaling the inputs of products")
    report = replace(quantized.report, log=(*quantized.report.log, *log.entries))
    return replace(quantized, graph=graph, report=report)


def _by_input(products: Sequence[RoundedProduct]) -> Iterator[tuple[Value, list[RoundedProduct]]]:
    found: dict[Value, list[RoundedProduct]] = {}
    for product in products:
        found.setdefault(product.rows, []).append(product)
    yield from found.items()


def _scale(
    graph: Graph, rows: Value, readers: Sequence[RoundedProduct], moments: Array, feedback: bool, log: PassLog
) -> None:
    reading = row_readers([reader.node for reader in readers])
    powers = POWERS if reading is not None else POWERS[:1]
    tried = [(factors, *_nearest(readers, factors, moments)) for factors in _candidates(moments, powers)]
    factors, rounded, error = min(tried, key=lambda each: each[2])
    plain = tried[0][2]
    if feedback:
        scaled = _scaled_moments(moments, factors)
        rounded = [
            replace(each, blocks=rounded_with_feedback(each.blocks, weights, reader.form.bits, scaled))
            for each, reader in zip(rounded, readers, strict=True)
            for weights in (reader.weights.astype(np.float64) * factors[:, None],)
        ]
    for reader, each in zip(readers, rounded, strict=True):
        _take(graph, reader, each)
    if reading is None or np.all(factors == 1.0):
        log.refused(rows.name, "no scaling of its elements lowers the error of the products that read it")
        return
    scale_input(graph, rows, reading, (1.0 / factors).astype(np.float32))
    gain = 10 * math.log10(plain / error) if min(plain, error) > 0.0 else 0.0
    log.applied(
        rows.name,
        f"its elements are divided by {factors.min():.3g} to {factors.max():.3g}, which weights of "
        f"{len(readers)} products make up for: the squared error that rounding adds falls by {gain:.1f} dB",
        exact=False,
    )


def _candidates(moments: Array, powers: Sequence[float]) -> Iterator[Array]:
    """Factors of elements, float64 [K]; the first are ones. Their geometric mean is 1."""
    sizes = np.sqrt(np.diagonal(moments))
    seen = sizes > 0.0
    levels = np.zeros(len(sizes))
    if seen.any():
        levels[seen] = np.log2(sizes[seen])
        levels[seen] -= levels[seen].mean()
    limit = math.log2(LARGEST_FACTOR)
    for power in powers:
        # As float32 holds them, so that factors and what makes up for them are the same numbers.
        yield (1.0 / (2.0 ** -np.clip(power * levels, -limit, limit)).astype(np.float32)).astype(np.float64)


def _scaled_moments(moments: Array, factors: Array) -> Array:
    return np.asarray(moments / np.outer(factors, factors))


def _nearest(
    readers: Sequence[RoundedProduct], factors: Array, moments: Array
) -> tuple[list[_Rounded], float]:
    """Weights times factors, each rounded to the nearest, and the squared error of all results."""
    scaled, found, error = _scaled_moments(moments, factors), [], 0.0
    for reader in readers:
        node, form = reader.node, reader.form
        weights = (reader.weights * factors[:, None]).astype(np.float32)
        half = operand(node, 2).type.is_half
        symmetric = len(node.inputs) < 4 or node.inputs[3] is None
        codes, scales, zeros = quantize_blocks(weights, form.bits, form.block, symmetric, half)
        blocks = RoundedBlocks.of(codes, widen(scales), zeros, form)
        found.append(_Rounded(blocks, scales, zeros))
        error += float(squared_errors(blocks, weights.astype(np.float64), scaled).sum())
    return found, error


def _take(graph: Graph, reader: RoundedProduct, rounded: _Rounded) -> None:
    """Give a product these weights in place of its own."""
    node: Node = reader.node
    codes, scales = operand(node, 1), operand(node, 2)
    made: list[Value | None] = [
        node.inputs[0],
        new_constant(graph, codes.name, pack(rounded.blocks.codes, reader.form.bits)),
        new_constant(graph, scales.name, rounded.scales),
    ]
    if rounded.zeros is not None:
        made.append(new_constant(graph, operand(node, 3).name, pack(rounded.zeros, reader.form.bits)))
    node.inputs = (*made, *node.inputs[len(made) :])
