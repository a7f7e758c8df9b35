"""Import of weights that are quantized in blocks.

https://onnx.ai/onnx/operators/onnx__DequantizeLinear.html, and onnxruntime's own MatMulNBits and
GatherBlockQuantized:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulNBits
"""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, TensorProto

from qglow.core.types import Array, ElementType
from qglow.graph.graph import Value
from qglow.graph.ops.blocks import BlockGather, BlockGemm
from qglow.graph.ops.movement import Gather
from qglow.importer.node import Broken, ImportNode, ImportRule
from qglow.importer.tensors import element_name
from qglow.importer.weight_blocks import WeightBlocks
from qglow.numerics.blocks import block_count, block_fault, middle, pack
from qglow.numerics.half import holds, store

_ROUNDING_LEVEL = 4
"""Accuracy level of MatMulNBits at which a runtime may round activations to int8."""


def rounds_rows(node: NodeProto) -> bool:
    """Whether a node is a MatMulNBits whose activations a runtime may round to int8."""
    levels = [attribute.i for attribute in node.attribute if attribute.name == "accuracy_level"]
    return node.op_type == "MatMulNBits" and levels == [_ROUNDING_LEVEL]


def import_blocks(node: ImportNode) -> None:
    """Import a DequantizeLinear of constant integers with a scale for each block along an axis.

    The result is a float constant; products know its integers and read these instead.
    """
    kind, block = node.integer("output_dtype", 0), node.integer("block_size", 0)
    given = element_name(kind)
    node.require(kind in (0, TensorProto.FLOAT), f"its result is {given}; float (32 bit) is supported")
    node.require(block > 0, f"block_size {block} is not positive")
    x, scales = node.array(0, "what it dequantizes"), node.array(1, "the scale")
    axis = node.axis(node.integer("axis", 1), x.ndim)
    wanted = list(x.shape)
    wanted[axis] = block_count(x.shape[axis], block)
    if list(scales.shape) != wanted:
        raise Broken(f"scales {list(scales.shape)} of blocks of {block} do not fit {list(x.shape)}")
    name = node.value(0).name
    shift, narrow = 0, node.context.narrow.get(name)
    if narrow is None:
        fits = x.dtype == np.int8
        node.require(fits, f"'{name}' is {x.dtype} in blocks; integers of 8, 4 and 2 bits are supported")
        shift = -128 if name in node.context.unsigned else 0
    bits = 8 if narrow is None else narrow.bits
    stored = node.optional_array(2, "the zero point")
    if stored is not None and list(stored.shape) != wanted:
        raise Broken(f"zero points {list(stored.shape)} do not fit scales {wanted}")
    zeros = np.full(wanted, shift, np.int16) if stored is None else stored.astype(np.int16)

    def reals() -> Array:
        spread = [np.repeat(a, block, axis)[_first(x.shape[axis], axis)] for a in (zeros, scales)]
        return np.asarray(((x - spread[0]).astype(np.float32) * spread[1]).astype(np.float32))

    sources = [x, scales] if stored is None else [x, scales, stored]
    node.constant(node.context.derived(("dequantized", block, axis, shift), sources, reals))
    if x.ndim == 2:
        low = 0 if narrow is not None and narrow.unsigned else -middle(bits)

        def codes_of(array: Array) -> Array:
            return np.asarray((array.astype(np.int16) - low).astype(np.uint8))

        codes = node.context.derived(("codes", low), [x], lambda: codes_of(x))
        points = codes_of(zeros)
        if stored is not None:
            points = node.context.derived(("codes", low), [stored], lambda: codes_of(zeros))
        stated = None if np.all(points == middle(bits)) else points
        node.context.blocks[node.proto.output[0]] = WeightBlocks(
            codes, scales.astype(np.float32, copy=False), stated, bits, block, axis
        )


def _first(count: int, axis: int) -> tuple[slice, ...]:
    return (*[slice(None)] * axis, slice(count))


def block_operands(node: ImportNode, known: WeightBlocks) -> tuple[BlockGemm, list[Value | None]]:
    """The operator of a product with such weights, and its operands from the weights to the zero points."""
    zeros = None
    if known.zero_points is not None:
        zeros = node.part_constant("zero_points", _packed(node, known.zero_points, known.bits))
    packed = node.part_constant("codes", _packed(node, known.codes, known.bits))
    scales = narrowed_scales(node, known.scales)
    return BlockGemm(bits=known.bits, block=known.block), [packed, scales, zeros]


def _packed(node: ImportNode, codes: Array, bits: int) -> Array:
    return node.context.derived(("packed", bits), [codes], lambda: pack(codes, bits))


def narrowed_scales(node: ImportNode, scales: Array, part: str = "scales") -> Value:
    """Scales as a constant, in 16 bits where these hold them all: files store them so, and cast them."""

    def narrowed() -> Array:
        wide = np.ascontiguousarray(scales, np.float32)
        return store(wide, "float16") if holds(wide, "float16") else wide

    return node.part_constant(part, node.context.derived("scales", [scales], narrowed))


def import_matmul_nbits(node: ImportNode) -> None:
    """Import MatMulNBits. Activations stay float, whatever its accuracy_level: int8 ones are a choice."""
    node.ignore("accuracy_level")
    bits, block = node.integer("bits", 4), node.integer("block_size", 0)
    depth, columns = node.integer("K", 0), node.integer("N", 0)
    fault = block_fault(bits, block)
    node.require(fault is None, str(fault))
    prepacked = node.integer("weight_prepacked", 0)
    node.require(
        prepacked == 0, f"weight_prepacked is {prepacked}; weights in the standard order are supported"
    )
    x, count = node.value(0), block_count(depth, block)
    node.require(x.type.is_float, f"input 0 is {x.type}; floats are supported")
    stored = _sized(node, 1, "the weights", columns * count * block * bits // 8)
    scales = _sized(node, 2, "the scales", columns * count).astype(np.float32, copy=False)
    order = _order(node, depth, block)
    if order is not None:
        places = node.part_constant("order", order.astype(np.int64))
        x = node.emit(Gather(axis=len(x.type.shape) - 1), x, places, part="ordered")
    zeros = _zero_points(node, bits, columns, count) if node.has_input(3) else None
    bias = None
    if node.has_input(5):
        bias = node.part_constant("bias", _sized(node, 5, "the bias", columns).astype(np.float32))

    def packed() -> Array:
        codes = codes_of_bytes(stored.reshape(columns, -1), bits)[:, :depth]
        codes = codes if order is None else codes[:, order]
        return pack(np.ascontiguousarray(codes.T), bits)

    def by_blocks() -> Array:
        return np.ascontiguousarray(scales.reshape(columns, count).T)

    derived, how = node.context.derived, ("columns", bits, columns, depth, block)
    sources = [stored] if order is None else [stored, node.array(4, "g_idx")]
    node.emit(
        BlockGemm(bits=bits, block=block),
        x,
        node.part_constant("codes", derived(how, sources, packed)),
        narrowed_scales(node, derived(("columns of scales", columns), [scales], by_blocks)),
        None if zeros is None else node.part_constant("zero_points", zeros),
        bias,
    )


def _order(node: ImportNode, depth: int, block: int) -> Array | None:
    """The order of k in which blocks are contiguous, as g_idx has them; None for ascending k."""
    if not node.has_input(4):
        return None
    groups = _sized(node, 4, "g_idx", depth).astype(np.int64)
    contiguous = np.arange(depth) // block
    order = np.argsort(groups, kind="stable")
    fits = np.array_equal(groups[order], contiguous)
    node.require(fits, f"g_idx has blocks of other sizes than {block}")
    if np.array_equal(groups, contiguous):
        return None
    node.require(not node.has_input(3), "g_idx beside zero points, which onnxruntime leaves out there")
    return order


def _zero_points(node: ImportNode, bits: int, columns: int, count: int) -> Array | None:
    """Zero points [blocks, N] of floats, or integers that are packed like weights."""
    derived, how = node.context.derived, ("columns of points", bits, columns, count)
    if node.value(3).type.element is not ElementType.UINT8:
        floats = _sized(node, 3, "the zero points", columns * count)
        return derived(how, [floats], lambda: np.ascontiguousarray(floats.reshape(columns, -1).T))
    row = -(-count * bits // 8)
    given = _sized(node, 3, "the zero points", columns * row)
    return derived(
        how, [given], lambda: pack(codes_of_bytes(given.reshape(columns, row), bits)[:, :count].T, bits)
    )


def codes_of_bytes(packed: Array, bits: int) -> Array:
    """Codes along the last axis of bytes that hold several, the first one in the lowest bits."""
    parts = [(packed >> (bits * number)) & ((1 << bits) - 1) for number in range(8 // bits)]
    return np.stack(parts, axis=-1).reshape(len(packed), -1)


def _sized(node: ImportNode, index: int, what: str, size: int) -> Array:
    """Elements of a constant input. Raises Broken where there are not `size`."""
    data = node.array(index, what)
    if data.size != size:
        raise Broken(f"{what} ('{node.value(index).name}') have {data.size} elements, not {size}")
    return data


def import_gather_blocks(node: ImportNode) -> None:
    """Import GatherBlockQuantized of the rows of a matrix, with blocks along them."""
    name, table = node.value(0).name, node.array(0, "the table")
    node.require(table.ndim == 2, f"the table has {table.ndim} axes; 2 are supported")
    axes = (node.axis(node.integer("gather_axis", 0), 2), node.axis(node.integer("quantize_axis", 1), 2))
    node.require(axes == (0, 1), f"gather_axis and quantize_axis are {axes}; 0 and 1 are supported")
    block, stated = node.integer("block_size", 128), node.integer("bits", 4)
    narrow = node.context.narrow.get(name)
    bits = stated if narrow is None else narrow.bits
    fault = block_fault(bits, block)
    node.require(fault is None, str(fault))
    scales = node.array(2, "the scales").astype(np.float32, copy=False)

    def packed() -> Array:
        if narrow is None:
            codes = codes_of_bytes(_bytes(node, 0, table), bits)
        else:
            codes = (table.astype(np.int16) - (0 if narrow.unsigned else -middle(bits))).astype(np.uint8)
        return np.ascontiguousarray(pack(codes.T, bits).T)

    held = node.context.derived(("rows", bits, narrow, name in node.context.unsigned), [table], packed)
    rows, width = table.shape[0], table.shape[1] * (8 // bits if narrow is None else 1)
    wanted = (rows, block_count(width, block))
    if scales.shape != wanted:
        raise Broken(f"scales {list(scales.shape)} of blocks of {block} do not fit {[rows, width]}")
    node.emit(
        BlockGather(width, bits, block),
        node.part_constant("table", held),
        node.value(1),
        narrowed_scales(node, scales),
        _table_zeros(node, bits, wanted),
    )


def _table_zeros(node: ImportNode, bits: int, shape: tuple[int, ...]) -> Value | None:
    """Zero points of a table's blocks as codes, packed along rows; None for the middle of the codes."""
    narrow = node.context.narrow.get(node.value(0).name)
    if not node.has_input(3):
        if narrow is None or not narrow.unsigned:
            return None
        zeros = np.zeros(shape, np.uint8)
        return node.part_constant("zero_points", np.ascontiguousarray(pack(zeros.T, bits).T))
    given = node.array(3, "the zero points")
    if narrow is None:
        zeros = codes_of_bytes(_bytes(node, 3, given).reshape(shape[0], -1), bits)[:, : shape[1]]
    else:
        zeros = (given.astype(np.int16) - (0 if narrow.unsigned else -middle(bits))).astype(np.uint8)
    if zeros.shape != shape:
        raise Broken(f"zero points {list(zeros.shape)} do not fit scales {list(shape)}")
    return node.part_constant("zero_points", np.ascontiguousarray(pack(zeros.T, bits).T))


def _bytes(node: ImportNode, index: int, data: Array) -> Array:
    """Constant bytes as the file has them."""
    if data.dtype == np.int8 and node.value(index).name in node.context.unsigned:
        return (data.astype(np.int16) + 128).astype(np.uint8)
    node.require(data.dtype == np.uint8, f"input {index} is {data.dtype}; bytes of codes are supported")
    return data


CONTRIBUTED: dict[str, ImportRule] = {
    "GatherBlockQuantized": ImportRule(import_gather_blocks, newest=1),
    "MatMulNBits": ImportRule(import_matmul_nbits, newest=1),
}
"""Operators of onnxruntime's own domain, com.microsoft."""
