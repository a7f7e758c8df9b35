"""Products and tables with weights in blocks: widths of codes, zero points, sizes that do not divide."""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array, ElementType, TensorType
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Value
from qglow.graph.ops.blocks import BlockGather, BlockGemm
from qglow.graph.ops.elementwise import Clip, Div
from qglow.graph.ops.quantize import Quantize
from qglow.graph.ops.rows import THEMSELVES, RowScales
from qglow.numerics.blocks import block_count, pack
from tests.suite.problem import Drawing, Maker, Problem

SIZES: list[tuple[tuple[int, ...], int, int, int, str, bool]] = [
    ((1, 64), 32, 4, 32, "", False),
    ((1, 300), 143, 4, 16, "whole", True),
    ((1, 120), 50, 4, 16, "whole", False),
    ((1, 3072), 70, 4, 256, "real", False),
    ((5, 37), 19, 4, 32, "real", True),
    ((2, 3, 96), 40, 4, 64, "whole", False),
    ((7, 50), 66, 8, 32, "", True),
    ((33, 33), 16, 8, 16, "whole", False),
    ((3, 100), 130, 8, 256, "real", True),
    ((4, 77), 21, 2, 48, "", False),
    ((1, 64), 200, 2, 16, "whole", True),
    ((40,), 5, 2, 16, "real", False),
    ((20, 1100), 43, 4, 32, "whole", True),
    ((26, 300), 37, 8, 16, "real", True),
    ((19, 530), 70, 2, 256, "", False),
    ((23, 1024), 43, 4, 64, "whole", True),
    ((1, 230), 70, 4, 32, "", True),
    ((1, 200), 40, 2, 16, "", False),
]


INTEGER_SIZES: list[tuple[tuple[int, ...], int, int, int, str, bool]] = [
    ((1, 64), 32, 4, 32, "", False),
    ((1, 301), 143, 4, 16, "whole", True),
    ((5, 37), 19, 4, 32, "whole", True),
    ((2, 3, 96), 40, 4, 64, "", False),
    ((7, 50), 66, 8, 32, "", True),
    ((33, 33), 16, 8, 16, "whole", False),
    ((3, 600), 130, 8, 256, "whole", True),
    ((1, 97), 21, 8, 48, "whole", False),
    ((4, 77), 21, 2, 48, "", False),
    ((13, 300), 90, 2, 128, "whole", True),
    ((40,), 5, 2, 16, "whole", False),
    ((6, 3), 8, 4, 256, "whole", True),
    ((9, 301), 24, 4, 80, "whole", True),
    ((11, 205), 37, 8, 48, "", False),
]


def integers_of_rows(b: GraphBuilder, x: Value) -> tuple[Value, Value]:
    """Integers of rows that are measured, and their scales."""
    scales = b.node(RowScales(), x)
    clipped = b.node(Clip(lo=-127.0, hi=127.0), b.node(Div(), x, scales))
    return b.node(Quantize(), clipped, output_types=[clipped.type.quantized(THEMSELVES)]), scales


def product(
    shape: tuple[int, ...],
    columns: int,
    bits: int,
    block: int,
    zeros: str,
    bias: bool,
    integers: bool = False,
    float16: bool = False,
) -> Maker:
    """Of rows, among them infinities, NaN and numbers so small that products are subnormal.

    integers: whether rows are integers, with scales that are measured. float16: whether scales of blocks are.
    """

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing("product_of_integers_and_blocks" if integers else "product_of_blocks", random)
        b, depth = drawing.builder, shape[-1]
        x = drawing.real(*shape)
        drawing.inputs[x.name].reshape(-1)[: depth // 2] *= np.float32(1e-38)
        levels = 1 << bits
        blocks = (block_count(depth, block), columns)
        w = b.constant("w", pack(random.integers(0, levels, (depth, columns)), bits))
        scales = b.constant("scales", _scales(drawing, blocks, float16))
        points: Value | None = None
        if zeros in ("whole", "packed"):
            found = random.integers(0, levels, blocks).astype(np.uint8)
            points = b.constant("zeros", pack(found, bits) if zeros == "packed" else found)
        elif zeros == "real":
            points = b.constant("zeros", drawing.weights(*blocks) + np.float32(levels / 2))
        terms = b.constant("bias", drawing.weights(columns)) if bias else None
        operator = BlockGemm(bits=bits, block=block, lo=0.0 if bias else -np.inf)
        if not integers:
            return drawing.finish(b.node(operator, x, w, scales, points, terms))
        whole, row_scales = integers_of_rows(b, x)
        return drawing.finish(b.node(operator, whole, w, scales, points, terms, row_scales))

    return make


def extremes(bits: int, rows: int) -> Maker:
    """Of integers 127 and -127 by codes as far from their zero points as they can be."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing("product_of_extreme_integers_and_blocks", random)
        b, block, blocks, columns, most = drawing.builder, 256, 2, 70, (1 << bits) - 1
        x = drawing.real(rows, block * blocks)
        drawing.inputs[x.name][:] = np.where(np.arange(rows) % 2, -3.0, 3.0)[:, None]
        points = np.where(random.integers(0, 2, (blocks, columns)), most, 0).astype(np.uint8)
        w = b.constant("w", pack(np.repeat(most - points, block, axis=0), bits))
        scales = b.constant("scales", _scales(drawing, (blocks, columns), False))
        whole, row_scales = integers_of_rows(b, x)
        operator, zeros = BlockGemm(bits=bits, block=block), b.constant("zeros", points)
        return drawing.finish(b.node(operator, whole, w, scales, zeros, None, row_scales))

    return make


def _scales(drawing: Drawing, blocks: tuple[int, ...], float16: bool) -> Array:
    """Positive scales; those of 16 bits have the least and the largest one among them."""
    found = np.abs(drawing.weights(*blocks))
    if not float16:
        return found
    halves = found.astype(np.float16)
    halves.reshape(-1)[:2] = 2.0**-24, 65504.0
    return halves


HALF_SIZES: list[tuple[tuple[int, ...], int, int, int, str, bool]] = [
    ((1, 64), 32, 4, 32, "", False),
    ((1, 300), 143, 4, 16, "packed", True),
    ((5, 37), 19, 8, 16, "packed", True),
    ((4, 77), 21, 2, 16, "packed", False),
    ((17, 200), 150, 4, 128, "packed", True),
]


TABLES: list[tuple[tuple[int, ...], int, int, int, str]] = [
    ((3,), 64, 4, 32, ""),
    ((2, 5), 37, 4, 16, "whole"),
    ((1, 4), 50, 8, 32, "whole"),
    ((), 21, 2, 16, ""),
    ((2, 3), 53, 4, 16, "packed"),
]


def look_up(shape: tuple[int, ...], width: int, bits: int, block: int, zeros: str) -> Maker:
    """Of rows of a table with 11 rows, some of them counted from the end; packed ones have small scales."""

    def make(random: np.random.Generator) -> Problem:
        drawing, rows, levels = Drawing("look_up_of_blocks", random), 11, 1 << bits
        b, blocks = drawing.builder, (rows, block_count(width, block))
        codes = random.integers(0, levels, (width, rows))
        table = b.constant("table", np.ascontiguousarray(pack(codes, bits).T))
        scales = b.constant("scales", _scales(drawing, blocks, zeros == "packed"))
        found = random.integers(0, levels, blocks).astype(np.uint8)
        if zeros == "packed":
            found = np.ascontiguousarray(pack(found.T, bits).T)
        points = b.constant("zeros", found) if zeros else None
        indices = b.input("indices", TensorType(ElementType.INT64, shape))
        drawing.inputs["indices"] = np.asarray(random.integers(-rows, rows, shape), np.int64)
        return drawing.finish(b.node(BlockGather(width, bits, block), table, indices, scales, points))

    return make


PROBLEMS: list[Maker] = [
    *(product(*sizes) for sizes in SIZES),
    *(product(*sizes, integers=True) for sizes in INTEGER_SIZES),
    *(product(*sizes, integers, float16=True) for sizes in HALF_SIZES for integers in (False, True)),
    *(extremes(bits, rows) for bits in (8, 4, 2) for rows in (1, 19)),
    *(look_up(*sizes) for sizes in TABLES),
]
