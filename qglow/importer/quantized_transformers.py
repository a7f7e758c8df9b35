"""Import of what onnxruntime's tools make of its fused operators of transformers by dynamic quantization.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
QAttention, QEmbedLayerNormalization
"""

from __future__ import annotations

from qglow.graph.graph import Value
from qglow.graph.ops.quantize import Dequantize
from qglow.importer.fused_attention import Masks, attend_projected
from qglow.importer.integer_sums import import_matmul_integer_to_float
from qglow.importer.node import ImportNode, ImportRule
from qglow.importer.quantize import read_parameters, stored, with_parameters
from qglow.importer.transformers import Embedding, give_embedded

_OF_ATTENTION = (
    "do_rotary",
    "mask_filter_value",
    "num_heads",
    "past_present_share_buffer",
    "rotary_embedding_dim",
    "scale",
    "unidirectional",
)


def import_quantized_attention(node: ImportNode) -> None:
    """Import QAttention: projections of x in one product of integers, then attention over heads."""
    x, weights, bias, scale, scales, mask_index, zero, zeros, past = (
        node.optional(index) for index in range(9)
    )
    width = node.kind(1).shape[-1]
    node.require(width % 3 == 0, f"weights are {node.kind(1)}; queries, keys and values are of one width")
    whole = node.emit_by(
        import_matmul_integer_to_float,
        "MatMulIntegerToFloat",
        [x, weights, scale, scales, zero, zeros, bias],
        "projected",
        _OF_ATTENTION,
    )
    attend_projected(node, whole, (width // 3,) * 3, past, Masks(5))


def import_quantized_embed_layer_normalization(node: ImportNode) -> None:
    """Import QEmbedLayerNormalization: tables and vectors of bytes, each with a scale and a zero point."""
    words, positions, weight, bias = (_real(node, index) for index in (2, 3, 5, 6))
    segments = _real(node, 4) if node.has_input(4) else None
    give_embedded(node, Embedding(words, positions, segments, weight, bias, node.optional(7)))


def _real(node: ImportNode, index: int) -> Value:
    """The reals of a constant, whose scale and zero point follow those of the constants before it."""
    place = index - 2
    quantization = read_parameters(node, node.value(index), 8 + place, 13 + place, 0, stored(node, index))
    integers = with_parameters(node, node.value(index), quantization)
    return node.emit(Dequantize(), integers, part=f"real{index}")


CONTRIBUTED: dict[str, ImportRule] = {
    "QAttention": ImportRule(import_quantized_attention, newest=1, reads_unsigned=True),
    "QEmbedLayerNormalization": ImportRule(
        import_quantized_embed_layer_normalization, newest=1, reads_unsigned=True
    ),
}
"""Operators of onnxruntime's own domain, com.microsoft."""
