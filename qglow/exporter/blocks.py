"""Products with weights in blocks as ONNX nodes: DequantizeLinear with a block size, MatMul, Mul and Add.

Integers of rows are dequantized with scale 1, and what they are multiplied with is scaled by the rows: the
integers are those of the graph, and a runtime rounds products and sums of floats in an order of its own.

Codes of 2 bits are written in 4, which all runtimes of operator set 21 read. Zero points that are no integers
have no such form: these weights are written in float.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from qglow.core.types import Array, ElementType
from qglow.exporter.export import Export
from qglow.graph.graph import Node
from qglow.graph.operator import Operator
from qglow.graph.ops.blocks import BlockGather, BlockGemm
from qglow.graph.ops.experts import ExpertBlockGemm, ExpertGemm
from qglow.numerics.blocks import apart, dequantized, gather_blocks, middle, pack, unpack

NIBBLE = 4


def _block_gemm(op: BlockGemm, out: Export) -> None:
    """Export the weights, their product with the rows, the scales of rows, then the addition of the bias."""
    steps = [("MatMul", "product", _weights(op, out))]
    if out.node.operand("row_scales") is not None:
        steps.append(("Mul", "scaled", out.inputs[5]))
    if out.node.operand("bias") is not None:
        steps.append(("Add", "sum", out.inputs[4]))
    value = out.inputs[0]
    for kind, part, factor in steps[:-1]:
        result = out.builder.fresh(f"{out.output}__{part}")
        value = out.builder.node(kind, f"{out.node.name}__{part}", [value, factor], result)
    kind, _, factor = steps[-1]
    out.builder.node(kind, out.node.name, [value, factor], out.output)


def _weights(op: BlockGemm | ExpertBlockGemm, out: Export, experts: int = 0) -> str:
    """The weights [K, N], or [experts, K, N] of those that lie beside each other."""
    depth, points = out.node.inputs[0], out.node.operand("zero_points")
    assert depth is not None
    rows = depth.type.shape[-1]
    codes, scales = _data(out.node, "w"), _data(out.node, "scales")
    zeros = None if points is None else points.data
    if points is not None and points.type.element is not ElementType.UINT8:
        whole = dequantized(codes, scales, zeros, rows, op.bits, op.block)
        return out.builder.constant(f"{out.node.name}__weights", whole)
    codes, low = unpack(codes, op.bits, rows), 0
    zeros = None if zeros is None else apart(zeros, op.bits, len(scales))
    if op.bits > NIBBLE:
        # onnxruntime turns int8 into uint8 with one zero point for all, which blocks may not have.
        stored = TensorProto.UINT8
        zeros = np.full(scales.shape, middle(op.bits), np.uint8) if zeros is None else zeros
    elif zeros is None:
        # Codes without zero points are signed numbers around the middle.
        stored, low = TensorProto.INT4, middle(op.bits)
    else:
        stored = TensorProto.UINT4
    inputs = [
        _tensor(out, "codes", _apart(codes - np.uint8(low), experts), stored),
        _scales(out, experts),
    ]
    if zeros is not None:
        spread = _apart(zeros.astype(np.uint8, copy=False), experts)
        inputs.append(_tensor(out, "zero_points", spread, stored))
    result = out.builder.fresh(f"{out.node.name}__weights")
    name = f"{out.node.name}__dequantize"
    axis = 1 if experts else 0
    real = out.builder.node("DequantizeLinear", name, inputs, result, axis=axis, block_size=op.block)
    if op.bits <= NIBBLE or experts or out.node.operand("row_scales") is None:
        return real
    # onnxruntime makes a product of integers of a MatMul whose operands are both dequantized from 8 bits, and
    # then refuses blocks. Flatten leaves a matrix as it is, and stands between.
    matrix = out.builder.fresh(f"{out.node.name}__matrix")
    return out.builder.node("Flatten", f"{out.node.name}__flatten", [real], matrix, axis=1)


def _apart(values: Array, experts: int) -> Array:
    """[experts, rows, N] of the columns of experts beside each other; as they are for none."""
    if not experts:
        return values
    parts = values.reshape(len(values), experts, -1).transpose(1, 0, 2)
    return np.ascontiguousarray(parts)


def _scales(out: Export, experts: int = 0) -> str:
    """Scales in float32; those of 16 bits are stored so and cast, since runtimes would compute in 16 bits."""
    scales = out.node.operand("scales")
    assert scales is not None and scales.data is not None
    name = f"{out.node.name}__scales"
    if not scales.type.is_half:
        return out.builder.constant(name, _apart(scales.data, experts))
    stored = out.builder.constant(f"{name}_float16", _apart(scales.data, experts))
    return out.builder.node("Cast", f"{name}_cast", [stored], out.builder.fresh(name), to=TensorProto.FLOAT)


def _tensor(out: Export, what: str, values: Array, stored: int) -> str:
    """A constant of 8 or 4 bits, two of 4 in a byte. values: uint8, negative ones as they wrap around."""
    flat = values.reshape(-1)
    if stored in (TensorProto.UINT4, TensorProto.INT4):
        filled = np.append(flat, np.uint8(0)) if flat.size % 2 else flat
        flat = (filled[::2] & np.uint8(0xF)) | (filled[1::2] << np.uint8(NIBBLE))
    raw = flat.tobytes()
    name = f"{out.node.name}__{what}"
    return out.builder.tensor(name, helper.make_tensor(name, stored, values.shape, raw, raw=True))


def _expert_gemm(op: ExpertGemm, out: Export) -> None:
    """Export the look-up of each row's matrix, its product with the row, and the addition of its bias."""
    depth, total = _data(out.node, "w").shape
    whole = _data(out.node, "w").reshape(depth, op.experts, total // op.experts).transpose(1, 0, 2)
    weights = out.builder.constant(f"{out.node.name}__weights", np.ascontiguousarray(whole))
    _look_up(op.experts, out, weights, out.inputs[2])


def _expert_block_gemm(op: ExpertBlockGemm, out: Export) -> None:
    """The same of weights in blocks, which are dequantized before one is looked up."""
    scales = out.inputs[6] if out.node.operand("row_scales") is not None else ""
    _look_up(op.experts, out, _weights(op, out, op.experts), out.inputs[3], scales)


def _look_up(experts: int, out: Export, weights: str, indices: str, scales: str = "") -> None:
    """Export the product of each row with its matrix; scales: those of rows of integers."""
    name, bias = out.node.name, out.node.operand("bias")

    def add(kind: str, part: str, *inputs: str, **attributes: Any) -> str:
        result = out.builder.fresh(f"{out.output}__{part}")
        return out.builder.node(kind, f"{name}__{part}", [*inputs], result, **attributes)

    axis = out.integers("axis", [-2])
    own = add("Gather", "chosen", weights, indices, axis=0)
    product = add("MatMul", "product", add("Unsqueeze", "row", out.inputs[0], axis), own)
    steps: list[tuple[str, str, str]] = [("Squeeze", "flat", axis)]
    if scales:
        steps.append(("Mul", "scaled", scales))
    if bias is not None:
        assert bias.data is not None
        terms = out.builder.constant(f"{name}__bias", bias.data.reshape(experts, -1))
        steps.append(("Add", "sum", add("Gather", "bias_of_row", terms, indices, axis=0)))
    for kind, part, other in steps[:-1]:
        product = add(kind, part, product, other)
    kind, _, other = steps[-1]
    out.builder.node(kind, name, [product, other], out.output)


def _data(node: Node, name: str) -> Array:
    value = node.operand(name)
    assert value is not None and value.data is not None
    return value.data


def _block_gather(op: BlockGather, out: Export) -> None:
    """Export GatherBlockQuantized, or Gather of a float table where that has no such blocks."""
    table, scales, indices = _data(out.node, "table"), _data(out.node, "scales"), out.inputs[1]
    points = out.node.operand("zero_points")
    zeros = None if points is None else points.data
    whole_bytes, power = op.width * op.bits % 8 == 0, op.block & (op.block - 1) == 0
    if op.bits < NIBBLE or not (whole_bytes and power):
        every = np.arange(len(table))
        real = gather_blocks(table, every, scales, zeros, op.width, op.bits, op.block)
        whole = out.builder.constant(f"{out.node.name}__table", real)
        out.builder.node("Gather", out.node.name, [whole, indices], out.output)
        return
    inputs = [
        out.builder.constant(f"{out.node.name}__codes", table),
        indices,
        _scales(out),
    ]
    if zeros is not None:
        points_apart = apart(zeros.T, op.bits, scales.shape[1])
        packed = np.ascontiguousarray(pack(points_apart, op.bits).T)
        inputs.append(out.builder.constant(f"{out.node.name}__zero_points", packed))
    form = {"bits": op.bits, "block_size": op.block, "gather_axis": 0, "quantize_axis": 1}
    out.builder.node(
        "GatherBlockQuantized", out.node.name, inputs, out.output, domain="com.microsoft", **form
    )


EXPORTS: dict[type[Operator], Callable[[Any, Export], None]] = {
    BlockGather: _block_gather,
    BlockGemm: _block_gemm,
    ExpertBlockGemm: _expert_block_gemm,
    ExpertGemm: _expert_gemm,
}
