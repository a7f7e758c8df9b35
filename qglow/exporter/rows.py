"""Products whose rows are scaled while the model runs as ONNX nodes: the scales, and sums of integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from qglow.core.types import Array, ElementType
from qglow.exporter.export import Export
from qglow.exporter.proto import ONNX_TYPES, ProtoBuilder
from qglow.graph.graph import Node
from qglow.graph.operator import Operator
from qglow.graph.ops.rows import THEMSELVES, RowScales
from qglow.numerics.rows import LARGEST, LEAST_SCALE


def _row_scales(op: RowScales, out: Export) -> None:
    """Export RowScales as Abs, ReduceMax, Div and Max."""
    node, names = out.node.name, [out.builder.fresh(f"{out.output}__{p}") for p in ("abs", "max", "scaled")]
    largest = out.builder.constant(f"{node}__largest", np.array(LARGEST, np.float32))
    least = out.builder.constant(f"{node}__least", np.array(LEAST_SCALE, np.float32))
    out.builder.node("Abs", f"{node}__abs", out.inputs, names[0])
    out.builder.node("ReduceMax", f"{node}__max", [names[0], out.integers("axes", [-1])], names[1])
    out.builder.node("Div", f"{node}__scaled", [names[1], largest], names[2])
    out.builder.node("Max", node, [names[2], least], out.output)


def is_sum_of_integers(node: Node) -> bool:
    """Whether a node is a product of integers that stand for themselves, given in float.

    DequantizeLinear around a float product would round sums beyond 2^24.
    """
    policy = node.operator.accumulate
    if policy is None or node.output.type.is_quantized or node.operand(policy.bias) is not None:
        return False
    found = [None if value is None else value.type.quantization for value in node.inputs[:2]]
    return all(quantization == THEMSELVES for quantization in found)


def export_sum_of_integers(builder: ProtoBuilder, node: Node, x: str, w: str, zero_point: str) -> None:
    """Write MatMulInteger and Cast. x and w name integers, `zero_point` that of x."""
    sums = builder.fresh(f"{node.output.name}__int32")
    builder.node("MatMulInteger", node.name, [x, w, zero_point], sums)
    builder.node("Cast", f"{node.name}__cast", [sums], node.output.name, to=ONNX_TYPES[ElementType.FLOAT])


def multiplies_row_scales(node: Node) -> bool:
    """Whether a node multiplies the scales of rows [M, 1] with constants [N]."""
    if len(node.inputs) != 2 or len(node.output.type.shape) != 2:
        return False
    scales, columns = node.inputs
    producer = None if scales is None else scales.producer
    measured = producer is not None and producer.operator.measures_rows
    return measured and columns is not None and columns.data is not None and columns.data.ndim == 1


def export_row_scales_product(builder: ProtoBuilder, node: Node, scales: str, columns: Array) -> None:
    """Write the products as a MatMul of one column and one row.

    onnxruntime takes a Mul of two scales behind a MatMulInteger for scales of tensors and columns, and would
    use the scale of the first row for all.
    """
    row = builder.constant(f"{node.name}__row", columns[None, :])
    builder.node("MatMul", node.name, [scales, row], node.output.name)


EXPORTS: dict[type[Operator], Callable[[Any, Export], None]] = {RowScales: _row_scales}
