"""Import of the operators that onnxruntime's optimizer makes of transformers, as what they stand for.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md BiasGelu, EmbedLayerNormalization,
FastGelu, FusedMatMul, Gelu, QuickGelu, SimplifiedLayerNormalization, SkipLayerNormalization,
SkipSimplifiedLayerNormalization. Attention is in fused_attention. And activations of other converters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qglow.core.types import ElementType
from qglow.graph.graph import Value
from qglow.graph.ops.elementwise import Add, Mul
from qglow.graph.ops.functions import Gelu, Swish
from qglow.graph.ops.linear import MatMul
from qglow.graph.ops.movement import Gather
from qglow.graph.ops.normalization import LayerNormalization
from qglow.graph.ops.reduce import ReduceSum
from qglow.graph.ops.shape import Cast, Identity, Transpose
from qglow.importer.composed import give_rms_normalized, import_rms_normalization
from qglow.importer.node import ImportNode, ImportRule

SUM = 3
"""Output that is what is normalized."""
LEAST_VARIANCE = 1e-12
"""Added to variances where a node states nothing."""


# Activations


def import_gelu(node: ImportNode) -> None:
    """Import Gelu, BiasGelu and FastGelu: of x, or of x and a bias."""
    x = node.value(0)
    node.require(x.type.is_float, f"input 0 is {x.type}; floats are supported")
    if node.has_input(1):
        x = node.emit(Add(), x, node.value(1), part="biased")
    fast = node.proto.op_type == "FastGelu"
    node.emit(Gelu(approximate="tanh" if fast else "none"), x)


def import_tflite_gelu(node: ImportNode) -> None:
    """Import TFL_GELU, by tanh where `approximate` is set. https://www.tensorflow.org/mlir/tfl_ops GELU"""
    node.emit(Gelu(approximate="tanh" if node.integer("approximate", 0) else "none"), node.value(0))


def import_quick_gelu(node: ImportNode) -> None:
    """Import QuickGelu: x times the sigmoid of alpha * x."""
    node.emit(Swish(alpha=node.number("alpha", 1.702)), node.value(0))


# Products


def import_fused_matmul(node: ImportNode) -> None:
    """Import FusedMatMul: alpha times a product, of which operands may be transposed."""
    for name in ("transBatchA", "transBatchB"):
        node.require(node.integer(name, 0) == 0, f"{name} is 1; batches in their own order are supported")
    factors = [_turned(node, index, f"trans{'AB'[index]}") for index in range(2)]
    alpha = node.number("alpha", 1.0)
    if alpha == 1.0:
        node.emit(MatMul(), *factors)
        return
    product = node.emit(MatMul(), *factors, part="product")
    node.emit(Mul(), product, node.part_constant("alpha", np.array(alpha, np.float32)))


def _turned(node: ImportNode, index: int, attribute: str) -> Value:
    """An operand, with its last two axes exchanged where the attribute says so; vectors have one."""
    value, rank = node.value(index), node.rank(index)
    if not node.integer(attribute, 0) or rank < 2:
        return value
    perm = (*range(rank - 2), rank - 1, rank - 2)
    return node.emit(Transpose(perm=perm), value, part=f"turned{index}")


# Normalizations


def import_simplified_layer_normalization(node: ImportNode) -> None:
    """Import SimplifiedLayerNormalization, which is RMSNormalization."""
    node.require_single_output()
    import_rms_normalization(node)


def import_skip_layer_normalization(node: ImportNode) -> None:
    """Import SkipLayerNormalization: the normalization of x + skip + bias. The sum is its fourth output."""
    shift = node.optional(3)
    total = _skip_sum(node, bias=4)
    axis, epsilon = len(total.type.shape) - 1, node.number("epsilon", LEAST_VARIANCE)
    node.emit(LayerNormalization(axis=axis, epsilon=epsilon), total, node.value(2), shift)


def import_skip_simplified_layer_normalization(node: ImportNode) -> None:
    """Import SkipSimplifiedLayerNormalization: the RMSNormalization of x + skip + bias."""
    total = _skip_sum(node, bias=3)
    epsilon, axis = node.number("epsilon", LEAST_VARIANCE), len(total.type.shape) - 1
    give_rms_normalized(node, total, node.value(2), axis, epsilon)


def _skip_sum(node: ImportNode, bias: int) -> Value:
    """The sum that is normalized. Refuses statistics as outputs, which training alone reads."""
    for index in (1, 2):
        node.require(not node.is_used(index), f"its output {index} is used; 0 and {SUM} are supported")
    total = node.emit(Add(), node.value(0), node.value(1), part="sum")
    if node.has_input(bias):
        total = node.emit(Add(), total, node.value(bias), part="sum_biased")
    if node.is_used(SUM):
        node.emit(Identity(), total, output=SUM)
    return total


# Embeddings


@dataclass(frozen=True)
class Embedding:
    """Operands of an embedding that is normalized: tables [rows, width], and vectors [width].

    mask: 1 for every token that counts. places: the position of each token, by default from 0 on.
    """

    words: Value
    positions: Value
    segments: Value | None
    weight: Value
    bias: Value
    mask: Value | None
    places: Value | None = None


def import_embed_layer_normalization(node: ImportNode) -> None:
    """Import EmbedLayerNormalization: rows of words, places and segments, added and normalized.

    The second output counts the tokens that the mask leaves, or is 0 without a mask.
    """
    node.require(node.integer("mask_index_type", 0) == 0, "mask_index_type is not 0")
    tables = node.value(2), node.value(3), node.optional(4)
    give_embedded(node, Embedding(*tables, node.value(5), node.value(6), node.optional(7), node.optional(8)))


def give_embedded(node: ImportNode, operands: Embedding) -> None:
    """Emit the outputs of an embedding of tokens and segments, which are the node's first two inputs."""
    ids, segments = node.value(0), node.optional(1)
    batch, length = ids.type.shape
    total = node.emit(Gather(), operands.words, ids, part="words")
    places = operands.places or node.part_constant("positions", np.arange(length, dtype=np.int64))
    placed = node.emit(Gather(), operands.positions, places, part="places")
    total = node.emit(Add(), total, placed, part="placed")
    if segments is not None and operands.segments is not None:
        kinds = node.emit(Gather(), operands.segments, segments, part="segments")
        total = node.emit(Add(), total, kinds, part="embedded")
    epsilon = node.number("epsilon", LEAST_VARIANCE)
    node.emit(LayerNormalization(axis=2, epsilon=epsilon), total, operands.weight, operands.bias)
    if node.is_used(1):
        _give_counts(node, batch, operands.mask)
    if node.is_used(2):
        node.emit(Identity(), total, output=2)


def _give_counts(node: ImportNode, batch: int, mask: Value | None) -> None:
    if mask is None:
        node.emit(Identity(), node.part_constant("nothing", np.zeros(batch, np.int32)), output=1)
        return
    node.emit(ReduceSum((1,), False), node.emit(Cast(to=ElementType.INT32), mask, part="mask"), output=1)


CONTRIBUTED: dict[str, ImportRule] = {
    "BiasGelu": ImportRule(import_gelu, newest=1),
    "EmbedLayerNormalization": ImportRule(import_embed_layer_normalization, newest=1),
    "FastGelu": ImportRule(import_gelu, newest=1),
    "FusedMatMul": ImportRule(import_fused_matmul, newest=1),
    "Gelu": ImportRule(import_gelu, newest=1),
    "QuickGelu": ImportRule(import_quick_gelu, newest=1),
    "SimplifiedLayerNormalization": ImportRule(import_simplified_layer_normalization, newest=1),
    "SkipLayerNormalization": ImportRule(import_skip_layer_normalization, newest=1),
    "SkipSimplifiedLayerNormalization": ImportRule(import_skip_simplified_layer_normalization, newest=1),
}
"""Operators of onnxruntime's own domain, com.microsoft."""

CONVERTED: dict[str, ImportRule] = {"TFL_GELU": ImportRule(import_tflite_gelu, newest=1)}
"""Operators of TFLite that tf2onnx passes on under their own names (`--custom-ops`), in its own domain."""
