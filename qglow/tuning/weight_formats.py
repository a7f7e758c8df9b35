"""Formats of weights in blocks, layer by layer: the least noise at the outputs within a number of bytes.

The error that a format makes in a layer's results is added to them in the float program, one layer at a time,
and the power by which the outputs move is its noise. Noises of layers add up, since roundings of different
weights are independent; the sum predicts the noise of all of them together.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qglow.core.errors import UsageError
from qglow.core.types import Array
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.rewriting import operand
from qglow.numerics.block_rounding import quantize_blocks
from qglow.numerics.blocks import block_count, dequantized, pack, packed_rows
from qglow.numerics.experts import gemm_experts
from qglow.quantization.blocks import has_matrices, unfit_for_blocks
from qglow.recipe.choices import BlockFormat
from qglow.toolchain import CompileOptions
from qglow.toolchain.observation import observe
from qglow.tuning.injection import Injection

FORMATS = tuple(
    BlockFormat.parse(text)
    for text in (
        *("int2:16", "int4:128:symmetric", "int4:128", "int4:64", "int4:32:symmetric", "int4:32", "int4:16"),
        *("int8:128:symmetric", "int8:32:symmetric"),
    )
)
"""Formats that a layer may get; scales are float16 where these hold them."""
_FLOAT, _FLOAT16 = 4, 2
"""Bytes of a scale."""


@dataclass(frozen=True)
class FormatNoise:
    """A format for the weights of a layer: bytes that it takes, and noise that it alone adds.

    noise: power of the change of all outputs over that of the outputs.
    """

    form: BlockFormat
    bytes: int
    noise: float


@dataclass(frozen=True)
class LayerFormats:
    """A layer and what each format does to it, by bytes; none is worse in both than another.

    weights: their number.
    """

    layer: str
    weights: int
    formats: tuple[FormatNoise, ...]


def layers_for_blocks(graph: Graph) -> list[Node]:
    """Products and look-ups of a float graph that can have weights in blocks."""
    return [node for node in graph.nodes if unfit_for_blocks(node, stated=True) is None]


def format_noises(
    graph: Graph,
    layers: Sequence[Node],
    runs: Sequence[Mapping[str, Array]],
    formats: Sequence[BlockFormat] = FORMATS,
    options: CompileOptions | None = None,
    advance: Callable[[int], None] = lambda runs: None,
) -> list[LayerFormats]:
    """Measure what every format does to the weights of layers of a float graph, by `layers_for_blocks`.

    runs: inputs of the graph. advance: is called with the number of runs done. Raises UsageError where the
    outputs are zero or not finite.
    """
    own = {node: [_stored(node, form) for form in formats] for node in layers}
    errors = {node: [_error(node, form) for form in own[node]] for node in layers}
    injection = Injection(graph, [node.output for node in layers], options)
    read = list(dict.fromkeys(value for node in layers for value in _read(node)))
    moved = {node: np.zeros(len(formats)) for node in layers}
    power = 0.0
    for given, found in zip(runs, observe(graph, read, runs, options), strict=True):
        run = injection.run(given)
        power += run.power
        for node in layers:
            for number, error in enumerate(errors[node]):
                added = _result_error(node, [found[value] for value in _read(node)], error)
                moved[node][number] += run.distance(node.output.name, added)
        advance(1)
    if not 0.0 < power < math.inf:
        raise UsageError(
            "the outputs over the calibration samples are zero or not finite: nothing tells noise"
        )
    return [
        LayerFormats(
            node.name,
            _weights(node).size,
            _front(
                FormatNoise(form, format_bytes(_weights(node), form), float(noise) / power)
                for form, noise in zip(own[node], moved[node], strict=True)
            ),
        )
        for node in layers
    ]


def choose_formats(layers: Sequence[LayerFormats], most: int, enough: float = 0.0) -> dict[str, FormatNoise]:
    """A format for each layer: little noise in at most `most` bytes, by the noise that falls for each byte.

    enough: noise of all layers together at which no further bytes are spent. Raises UsageError where the
    smallest formats take more than `most`.
    """
    chosen = {layer.layer: layer.formats[0] for layer in layers}
    left = most - sum(found.bytes for found in chosen.values())
    if left < 0:
        least = 8.0 * (most - left) / sum(layer.weights for layer in layers)
        raise UsageError(
            f"weights take {most - left} bytes in the smallest formats, {least:.2f} bits each, and {most} "
            "bytes are allowed"
        )
    known = {layer.layer: layer.formats for layer in layers}
    waiting = [_step(formats, formats[0], name) for name, formats in known.items() if len(formats) > 1]
    heapq.heapify(waiting)
    while waiting and sum(found.noise for found in chosen.values()) > enough:
        _, name, number = heapq.heappop(waiting)
        now, wanted = chosen[name], known[name][number]
        if wanted.bytes - now.bytes <= left:
            left -= wanted.bytes - now.bytes
            chosen[name] = wanted
        else:
            # A smaller step of the same layer may fit.
            larger = [x for x in known[name] if now.bytes < x.bytes <= now.bytes + left]
            if not larger:
                continue
            left -= larger[-1].bytes - now.bytes
            chosen[name] = larger[-1]
        if chosen[name] is not known[name][-1]:
            heapq.heappush(waiting, _step(known[name], chosen[name], name))
    return chosen


def format_bytes(weights: Array, form: BlockFormat) -> int:
    """Bytes of weights [K, N] in a format: codes, zero points packed as they are, and scales."""
    depth, columns = weights.shape
    blocks = block_count(depth, form.block)
    zeros = 0 if form.symmetric else packed_rows(blocks, form.bits)
    scales = blocks * (_FLOAT16 if form.float16 else _FLOAT)
    return int((packed_rows(depth, form.bits) + scales + zeros) * columns)


def _step(formats: Sequence[FormatNoise], now: FormatNoise, name: str) -> tuple[float, str, int]:
    """The larger format with the most noise less for each byte, as an entry of a heap."""
    first = formats.index(now) + 1
    rates = [(now.noise - x.noise) / (x.bytes - now.bytes) for x in formats[first:]]
    best = max(range(len(rates)), key=rates.__getitem__)
    return -rates[best], name, first + best


def _front(found: Iterable[FormatNoise]) -> tuple[FormatNoise, ...]:
    """Keep those that no other beats in both bytes and noise, the smallest first."""
    kept: list[FormatNoise] = []
    for each in sorted(found, key=lambda x: (x.bytes, x.noise)):
        if not kept or (each.noise < kept[-1].noise and each.bytes > kept[-1].bytes):
            kept.append(each)
    return tuple(kept)


def _weights(node: Node) -> Array:
    """Weights [K, N] of a product; of a table, its rows as columns."""
    if node.operator.looks_up_rows:
        return np.asarray(operand(node).data, np.float32).T
    return np.asarray(operand(node, 1).data, np.float32)


def _stored(node: Node, form: BlockFormat) -> BlockFormat:
    """The format with scales of 16 bits, where these hold them."""
    narrow = replace(form, float16=True)
    return narrow if unfit_for_blocks(node, narrow, stated=True) is None else form


def _error(node: Node, form: BlockFormat) -> Array:
    """Return what a format adds to the weights [K, N]."""
    weights = np.ascontiguousarray(_weights(node))
    codes, scales, zeros = quantize_blocks(weights, form.bits, form.block, form.symmetric, form.float16)
    packed = pack(codes, form.bits)
    found = dequantized(packed, scales, zeros, len(weights), form.bits, form.block)
    return np.asarray(found - weights, np.float32)


def _read(node: Node) -> list[Value]:
    """The operands that the weights meet: rows of a product, and their experts, or indices of a table."""
    if node.operator.looks_up_rows:
        return [operand(node, 1)]
    return [operand(node), *([operand(node, 2)] if has_matrices(node) else [])]


def _product(node: Node, found: Sequence[Array], weights: Array, bias: Array | None = None) -> Array:
    """Return the product of what a layer reads with weights [K, N], plus a bias."""
    if has_matrices(node):
        count = weights.shape[1] // node.output.type.shape[-1]
        return gemm_experts(found[0], weights, found[1], count, bias)
    product = found[0] @ weights
    return np.asarray(product if bias is None else product + bias, np.float32)


def _result_error(node: Node, found: Sequence[Array], error: Array) -> Array:
    """Return what an error of the weights [K, N] adds to the results of a layer that reads `found`."""
    if node.operator.looks_up_rows:
        return np.asarray(error.T[found[0]], np.float32)
    added = _product(node, found, error)
    lo, hi = node.operator.bounds
    if math.isinf(lo) and math.isinf(hi):
        return added
    bias = node.operand("bias")
    whole = _product(node, found, _weights(node), None if bias is None else bias.data)
    return np.asarray(np.clip(whole + added, lo, hi) - np.clip(whole, lo, hi), np.float32)
