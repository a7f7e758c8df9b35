"""Import of mixtures of experts, as the products and activations that they stand for.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md MoE, QMoE

A router's scores choose `k` experts for each row; their results are added up with weights that come from the
scores. Columns of gates and of what they multiply lie apart here, also where a file interleaves them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from qglow.core.types import Array
from qglow.graph.graph import Value
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Add, Clip, Div, Mul, Relu
from qglow.graph.ops.experts import ExpertBlockGemm, ExpertGemm
from qglow.graph.ops.functions import Swish
from qglow.graph.ops.movement import Expand, GatherElements, Slice
from qglow.graph.ops.ranking import TopK, TopKIndices
from qglow.graph.ops.reduce import ReduceSum
from qglow.graph.ops.shape import Reshape
from qglow.importer.blocks import codes_of_bytes, narrowed_scales
from qglow.importer.node import Broken, ImportNode, ImportRule
from qglow.importer.softmax import probabilities
from qglow.importer.transformers import import_gelu
from qglow.numerics.blocks import LARGEST_BLOCK, block_count, block_fault, pack

APART, INTERLEAVED, JOINED = 0, 1, 2
"""Layouts of gates and of what they multiply: two matrices, columns in turns, one half behind the other."""
GATED = "swiglu"

Product = Callable[[ImportNode, "Layer", Value, Value, Array | None], Value]
"""Emits the product of rows with the matrices of their experts; columns of each are in the order given."""


@dataclass(frozen=True)
class Layer:
    """Places of a node's inputs for one of its up to three matrices an expert.

    scales, zero_points: those of weights of integers.
    """

    number: int
    weights: int
    bias: int
    scales: int = -1
    zero_points: int = -1


FLOAT_LAYERS = (Layer(1, 2, 3), Layer(2, 4, 5), Layer(3, 6, 7))
INTEGER_LAYERS = (Layer(1, 2, 4, 3, 11), Layer(2, 5, 7, 6, 12), Layer(3, 8, 10, 9, 13))
ROUTER_WEIGHTS = 14
"""Input of QMoE with the scores that results are weighted by, where others choose the experts."""


def import_mixture(node: ImportNode) -> None:
    """Import MoE: weights are floats, and a row's scores become probabilities before experts are chosen."""
    scores, k = node.value(1), node.integer("k", 1)
    if node.integer("normalize_routing_weights", 0):
        shares = _first(node, scores, k)
    else:
        every = probabilities(node, scores, "probabilities")
        shares = node.emit(TopK(axis=1, k=k), every, part="shares")
    _give_mixture(node, FLOAT_LAYERS, shares, _float_product)


def import_quantized_mixture(node: ImportNode) -> None:
    """Import QMoE: weights are integers, scores become probabilities among the chosen experts.

    Activations stay float, whatever its accuracy_level.
    """
    kind = node.string("quant_type", "int")
    node.require(kind == "int", f"quant_type is {kind}; weights of integers are supported")
    packed = node.integer("weights_prepacked", -1)
    node.require(packed < 1, f"weights_prepacked is {packed}; weights in the standard order are supported")
    node.ignore("accuracy_level")
    scores, k = node.value(1), node.integer("k", 1)
    if not node.has_input(ROUTER_WEIGHTS):
        node.ignore("normalize_routing_weights")
        shares = _first(node, scores, k)
    else:
        chosen = node.emit(TopKIndices(axis=1, k=k), scores, part="weighted")
        shares = node.emit(GatherElements(axis=1), node.value(ROUTER_WEIGHTS), chosen, part="shares")
        if node.integer("normalize_routing_weights", 0):
            total = node.emit(ReduceSum(axes=(1,), keepdims=True), shares, part="share_sums")
            shares = node.emit(Div(), shares, total, part="normalized")
    _give_mixture(node, INTEGER_LAYERS, shares, _integer_product)


def _first(node: ImportNode, scores: Value, k: int) -> Value:
    """Probabilities among the `k` largest scores."""
    return probabilities(node, node.emit(TopK(axis=1, k=k), scores, part="scores"), "shares")


def _give_mixture(
    node: ImportNode,
    layers: tuple[Layer, Layer, Layer],
    shares: Value,
    made: Product,
) -> None:
    """Emit the layers of the chosen experts, and the sum of their results by their shares [rows, k]."""
    sparse = node.integer("use_sparse_mixer", 0)
    node.require(not sparse, "use_sparse_mixer is 1; experts that the largest scores choose are supported")
    x, scores, k = node.value(0), node.value(1), node.integer("k", 1)
    node.require(
        x.type.is_float and scores.type.is_float, f"inputs are {x.type} and {scores.type}, not float"
    )
    width, rows = x.type.shape[-1], math.prod(x.type.shape[:-1])
    count = scores.type.shape[-1]
    fits = len(scores.type.shape) == 2 and scores.type.shape[0] == rows and 0 < k <= count
    node.require(fits, f"scores {scores.type} of {rows} rows, of which the first {k} count")
    chosen = node.emit(TopKIndices(axis=1, k=k), scores, part="chosen")
    single = node.emit(Reshape(shape=(rows, 1, width)), x, part="rows")
    spread = node.emit(Expand(shape=(rows, k, width)), single, part="spread") if k > 1 else single
    hidden = _activated(node, layers, made, spread, chosen)
    result = made(node, layers[1], hidden, chosen, None)
    factors = node.emit(Reshape(shape=(rows, k, 1)), shares, part="factors")
    weighted = node.emit(Mul(), result, factors, part="weighted_results")
    total = node.emit(ReduceSum(axes=(1,), keepdims=False), weighted, part="sum")
    node.emit(Reshape(shape=x.type.shape), total)


def _activated(
    node: ImportNode,
    layers: tuple[Layer, Layer, Layer],
    made: Product,
    x: Value,
    chosen: Value,
) -> Value:
    """Emit what the last layer reads: activations, or gates times what they let through."""
    kind, layout = node.string("activation_type", "relu"), node.integer("swiglu_fusion", APART)
    alpha, beta = node.number("activation_alpha", 1.0), node.number("activation_beta", 0.0)
    limit = node.number("swiglu_limit", math.inf)
    behind = node.integer("swiglu_limit_after_activation", 0)
    node.require(not behind, "swiglu_limit_after_activation is 1; limits before activations are supported")
    first, _, third = layers
    has_third = node.has_input(third.weights)
    if kind != GATED:
        found = _function(node, kind, made(node, first, x, chosen, None))
        if not has_third:
            return found
        return node.emit(Mul(), found, made(node, third, x, chosen, None), part="gated")
    if layout == APART:
        node.require(has_third, "swiglu without a third matrix, and swiglu_fusion is 0")
        gate, passed = (made(node, layer, x, chosen, None) for layer in (first, third))
    else:
        node.require(not has_third, f"a third matrix beside swiglu_fusion {layout}")
        columns = node.kind(first.weights).shape[1]
        node.require(columns % 2 == 0, f"{columns} columns of gates and of what they multiply")
        order = None
        if layout == INTERLEAVED:
            order = np.concatenate([np.arange(0, columns, 2), np.arange(1, columns, 2)])
        both = made(node, first, x, chosen, order)
        gate, passed = (
            node.emit(_half(both, half), both, part=part) for half, part in enumerate(("gate", "passed"))
        )
    if math.isfinite(limit):
        gate = node.emit(Clip(hi=limit), gate, part="limited_gate")
        passed = node.emit(Clip(lo=-limit, hi=limit), passed, part="limited")
    if beta:
        passed = node.emit(
            Add(), passed, node.part_constant("beta", np.array(beta, np.float32)), part="moved"
        )
    return node.emit(Mul(), node.emit(Swish(alpha=alpha), gate, part="open"), passed, part="gated")


def _half(both: Value, half: int) -> Slice:
    """The first or second half of the last axis."""
    *outer, width = both.type.shape
    start, end = half * (width // 2), (half + 1) * (width // 2)
    rank = len(outer) + 1
    return Slice((*[0] * len(outer), start), (*outer, end), (1,) * rank)


def _function(node: ImportNode, kind: str, x: Value) -> Value:
    """Emit an activation by its name."""
    if kind == "identity":
        return x
    if kind == "gelu":
        stated = [attribute.name for attribute in node.proto.attribute]
        return node.emit_by(import_gelu, "FastGelu", [x], "activated", stated)
    operators: dict[str, Operator] = {"relu": Relu(), "silu": Swish(alpha=1.0)}
    node.require(kind in operators, f"activation_type is {kind}; relu, gelu, silu and swiglu are supported")
    return node.emit(operators[kind], x, part="activated")


def _bias(node: ImportNode, layer: Layer, order: Array | None) -> Value | None:
    """The biases of all experts, one behind the other; order: that of the columns of each."""
    if not node.has_input(layer.bias):
        return None
    bias = node.array(layer.bias, "the bias").astype(np.float32)
    shape = node.kind(layer.weights).shape[:2]
    if bias.shape != shape:
        raise Broken(f"biases {list(bias.shape)} do not fit {list(shape)} experts and columns")
    ordered = bias if order is None else bias[:, order]
    return node.part_constant(f"bias{layer.number}", np.ascontiguousarray(ordered.reshape(-1)))


def _float_product(node: ImportNode, layer: Layer, x: Value, chosen: Value, order: Array | None) -> Value:
    """Emit the product with matrices of floats, [experts, N, K] in the file."""
    data = node.array(layer.weights, "the weights")
    node.require(data.ndim == 3, f"the weights have {data.ndim} axes; 3 are supported")
    count, columns, depth = data.shape
    if depth != x.type.shape[-1]:
        raise Broken(f"weights {list(data.shape)} do not fit {x.type}")

    def beside() -> Array:
        ordered = data if order is None else data[:, order]
        return np.ascontiguousarray(ordered.reshape(count * columns, depth).T, np.float32)

    weights = node.context.derived(("beside", order is None), [data], beside)
    operands = node.part_constant(f"w{layer.number}", weights), chosen, _bias(node, layer, order)
    return node.emit(ExpertGemm(count), x, *operands, part=f"product{layer.number}")


def _integer_product(node: ImportNode, layer: Layer, x: Value, chosen: Value, order: Array | None) -> Value:
    """Emit the product with integers, whose scales are those of blocks or of whole columns."""
    bits = node.integer("expert_weight_bits", 4)
    bits = node.integer(f"fc{layer.number}_expert_weight_bits", bits)
    stated, depth = node.integer("block_size", 0), x.type.shape[-1]
    block = min(stated or LARGEST_BLOCK, LARGEST_BLOCK)
    fault = block_fault(bits, block)
    node.require(fault is None, str(fault))
    node.require(
        stated % block == 0, f"blocks of {stated}; multiples of {LARGEST_BLOCK} above it are supported"
    )
    data = node.array(layer.weights, "the weights")
    node.require(depth * bits % 8 == 0, f"{depth} weights of {bits} bits a column, which fill no bytes")
    shape = (*data.shape[:2], depth * bits // 8)
    if data.shape != shape or len(shape) != 3:
        raise Broken(f"weights {list(data.shape)} of {bits} bits do not fit {x.type}")
    count, columns, _ = data.shape
    wanted = (count, columns, block_count(depth, stated)) if stated else (count, columns)
    scales = node.array(layer.scales, "the scales")
    if scales.shape != wanted:
        raise Broken(f"scales {list(scales.shape)} do not fit {list(wanted)}")
    points = None
    if node.has_input(layer.zero_points):
        points = _points(node, layer, bits, wanted)
    blocks, places = block_count(depth, block), np.arange(block_count(depth, block)) * block

    def by_blocks(array: Array) -> Array:
        """[blocks, experts * columns] of what is given for each block or column of the file."""
        ordered = array if order is None else array[:, order]
        apart = ordered.reshape(count * columns, -1)
        return np.ascontiguousarray((apart[:, places // stated] if stated else np.repeat(apart, blocks, 1)).T)

    def packed() -> Array:
        """Bytes [K * bits / 8, experts * columns]: a file packs along K too, in the same order of bits."""
        ordered = data if order is None else data[:, order]
        return np.ascontiguousarray(ordered.reshape(count * columns, -1).T)

    part, derived = str(layer.number), node.context.derived
    own = derived(("experts", bits, order is None), [data], packed)
    factors = derived(
        ("experts", block, order is None), [scales], lambda: by_blocks(scales.astype(np.float32))
    )
    zeros = None if points is None else node.part_constant(f"zeros{part}", pack(by_blocks(points), bits))
    return node.emit(
        ExpertBlockGemm(count, bits, block),
        x,
        node.part_constant(f"codes{part}", own),
        narrowed_scales(node, factors, f"scales{part}"),
        chosen,
        zeros,
        _bias(node, layer, order),
        part=f"product{part}",
    )


def _points(node: ImportNode, layer: Layer, bits: int, shape: tuple[int, ...]) -> Array:
    """Zero points of the shape of scales; a file packs them along the last axis."""
    data = node.array(layer.zero_points, "the zero points")
    wanted = (*shape[:-1], -(-shape[-1] * bits // 8))
    if data.shape != wanted:
        raise Broken(f"zero points {list(data.shape)} do not fit {list(wanted)}")
    return codes_of_bytes(data.reshape(-1, wanted[-1]), bits)[:, : shape[-1]].reshape(shape)


CONTRIBUTED: dict[str, ImportRule] = {
    "MoE": ImportRule(import_mixture, newest=1),
    "QMoE": ImportRule(import_quantized_mixture, newest=1),
}
"""Operators of onnxruntime's own domain, com.microsoft."""
