"""Look-ups in tables whose transpose a product multiplies by, in every form that both may have."""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array, ElementType, Quantization, TensorType
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Value
from qglow.graph.ops.blocks import BlockGather, BlockGemm
from qglow.graph.ops.elementwise import Clip, Div
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.movement import Gather
from qglow.graph.ops.quantize import Dequantize, Quantize
from qglow.graph.ops.rows import THEMSELVES, RowScales
from qglow.numerics.blocks import block_count, pack
from qglow.numerics.half import round_to
from tests.suite.problem import Drawing, Maker, Problem, moderate

WORDS, WIDTH = 583, 64
"""Words fill no whole number of vectors, and the tables are large enough to be shared."""


def _indices(drawing: Drawing, shape: tuple[int, ...]) -> Value:
    drawing.inputs["indices"] = np.asarray(drawing.random.integers(-WORDS, WORDS, shape), np.int64)
    return drawing.builder.input("indices", TensorType(ElementType.INT64, shape))


def _rows(drawing: Drawing, count: int, width: int) -> Value:
    drawing.inputs["rows"] = moderate(drawing.random, (count, width))
    return drawing.builder.input("rows", TensorType(ElementType.FLOAT, (count, width)))


def _integers(b: GraphBuilder, x: Value) -> tuple[Value, Value]:
    """Integers of rows, and their scales."""
    scales = b.node(RowScales(), x)
    clipped = b.node(Clip(lo=-127.0, hi=127.0), b.node(Div(), x, scales))
    return b.node(Quantize(), clipped, output_types=[clipped.type.quantized(THEMSELVES)]), scales


def real(shape: tuple[int, ...], rows: int, element: str = "") -> Maker:
    """A float table and head, whose numbers 16 bits hold if a type of these is named."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing("tied_table", random)
        b, width = drawing.builder, WIDTH + 3
        data: Array = drawing.weights(WORDS, width)
        data = round_to(data, element) if element else data
        table, head = b.constant("table", data), b.constant("head", np.ascontiguousarray(data.T))
        chosen = b.node(Gather(), table, _indices(drawing, shape))
        product = b.node(Gemm(), _rows(drawing, rows, width), head, None)
        return drawing.finish(chosen, product, exact=False)

    return make


def integers(shape: tuple[int, ...], rows: int, columns: bool) -> Maker:
    """An int8 table; the head has scales of its columns, or plain integers beside scales of rows."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing("tied_integers", random)
        b = drawing.builder
        data = random.integers(-127, 128, (WIDTH, WORDS)).astype(np.int8)
        table = b.constant("table", np.ascontiguousarray(data.T), THEMSELVES)
        kind = TensorType(ElementType.INT8, (*shape, WIDTH), THEMSELVES)
        looked_up = b.node(Gather(), table, _indices(drawing, shape), output_types=[kind])
        chosen = b.node(Dequantize(), looked_up)
        x = _rows(drawing, rows, WIDTH)
        if not columns:
            whole, scales = _integers(b, x)
            head = b.constant("head", data, THEMSELVES)
            return drawing.finish(chosen, b.node(Gemm(), whole, head, None), scales)
        columns_of = Quantization.per_channel(np.full(WORDS, 0.01, np.float32), 1)
        given = b.node(Quantize(), x, output_types=[x.type.quantized(Quantization.per_tensor(0.03, 5))])
        return drawing.finish(chosen, b.node(Gemm(), given, b.constant("head", data, columns_of), None))

    return make


def blocks(shape: tuple[int, ...], rows: int, bits: int, block: int, zeros: str, dynamic: bool) -> Maker:
    """A table in blocks; zeros: "", or whether zero points have a byte each or are packed."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing("tied_blocks", random)
        b, width = drawing.builder, 2 * WIDTH if bits > 2 else 4 * WIDTH
        codes = pack(random.integers(0, 1 << bits, (width, WORDS)), bits)
        each = block_count(width, block), WORDS
        scales = np.abs(drawing.weights(*each))
        found = random.integers(0, 1 << bits, each).astype(np.uint8)
        points = None if not zeros else pack(found, bits) if zeros == "packed" else found
        stored = [codes, scales, points]
        w = [None if a is None else b.constant(f"w{i}", a) for i, a in enumerate(stored)]
        turned = [None if a is None else np.ascontiguousarray(a.T) for a in stored]
        t = [None if a is None else b.constant(f"t{i}", a) for i, a in enumerate(turned)]
        operator = BlockGather(width, bits, block)
        chosen = b.node(operator, t[0], _indices(drawing, shape), *t[1:])
        x = _rows(drawing, rows, width)
        if not dynamic:
            return drawing.finish(chosen, b.node(BlockGemm(bits, block), x, *w, None))
        whole, measured = _integers(b, x)
        return drawing.finish(chosen, b.node(BlockGemm(bits, block), whole, *w, None, measured))

    return make


PROBLEMS: list[Maker] = [
    *(real(shape, rows) for shape, rows in (((1,), 1), ((2, 5), 3), ((), 1))),
    *(real(shape, rows, e) for shape, rows, e in (((1,), 1, "float16"), ((2, 5), 3, "bfloat16"))),
    *(integers(shape, rows, columns) for shape, rows, columns in (((1,), 1, False), ((3, 2), 5, True))),
    *(
        blocks(shape, rows, bits, block, zeros, dynamic)
        for shape, rows, bits, block, zeros in (
            ((1,), 1, 8, 32, "whole"),
            ((2, 3), 7, 8, 16, ""),
            ((4,), 1, 4, 32, "packed"),
            ((1, 1), 5, 4, 64, ""),
            ((3,), 2, 2, 16, "packed"),
        )
        for dynamic in (False, True)
    ),
]
