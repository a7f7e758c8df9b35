"""Import of weights that are four-bit floats in blocks, as bitsandbytes has them.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md MatMulBnb4
Tim Dettmers and others, QLoRA: Efficient Finetuning of Quantized LLMs, https://arxiv.org/abs/2305.14314
"""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array
from qglow.graph.ops.linear import MatMul
from qglow.importer.node import Broken, ImportNode, ImportRule
from qglow.importer.quantize import stored

_HALF_OF_FP4 = (0.0, 1 / 192, 2 / 3, 1.0, 1 / 3, 1 / 2, 1 / 6, 1 / 4)
_NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
NUMBERS = {
    0: np.array((*_HALF_OF_FP4, *(-number for number in _HALF_OF_FP4)), np.float32),
    1: np.array(_NF4, np.float32),
}
"""The sixteen numbers of each `quant_type`: FP4 and NF4, before the largest magnitude of a block."""


def import_matmul_bnb4(node: ImportNode) -> None:
    """Import MatMulBnb4: the weights become float constants, each a number of sixteen times its block's."""
    node.ignore("training_mode")
    kind, block = node.integer("quant_type", 0), node.integer("block_size", 0)
    depth, columns = node.integer("K", 0), node.integer("N", 0)
    node.require(kind in NUMBERS, f"quant_type is {kind}; 0 (FP4) and 1 (NF4) are supported")
    node.require(node.integer("transB", 1) == 1, "transB is 0; weights [N, K] are supported")
    count = depth * columns
    if min(depth, columns, block) < 1:
        raise Broken(f"K {depth}, N {columns} and block_size {block} are not all positive")
    codes, largest = node.array(1, "the weights"), node.array(2, "the largest magnitudes")
    if codes.size != -(-count // 2) or largest.size != -(-count // block):
        raise Broken(f"{codes.size} bytes and {largest.size} magnitudes are no weights [{columns}, {depth}]")
    shift = stored(node, 1).shift

    def reals() -> Array:
        pairs = (codes.reshape(-1).astype(np.int16) - shift).astype(np.uint8)
        places = np.stack([pairs >> 4, pairs & 15], axis=1).reshape(-1)[:count]
        factors = np.repeat(largest.reshape(-1).astype(np.float32), block)[:count]
        return np.ascontiguousarray((NUMBERS[kind][places] * factors).reshape(columns, depth).T)

    how = ("four-bit floats", kind, block, columns)
    weights = node.part_constant("weights", node.context.derived(how, [codes, largest], reals))
    node.emit(MatMul(), node.value(0), weights)


CONTRIBUTED: dict[str, ImportRule] = {
    "MatMulBnb4": ImportRule(import_matmul_bnb4, newest=1, reads_unsigned=True)
}
"""Operators of onnxruntime's own domain, com.microsoft."""
