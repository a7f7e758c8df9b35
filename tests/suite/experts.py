"""Products with the matrices of experts: few and many rows, experts without rows, indices out of range."""

from __future__ import annotations

import math

import numpy as np

from qglow.core.types import ElementType, TensorType
from qglow.graph.ops.experts import ExpertBlockGemm, ExpertGemm
from qglow.numerics.blocks import block_count, pack
from tests.suite.blocks import integers_of_rows
from tests.suite.problem import Drawing, Maker, Problem

SIZES: list[tuple[tuple[int, ...], int, int, bool]] = [
    ((1, 24), 40, 5, True),
    ((2, 3, 17), 21, 4, False),
    ((40, 33), 70, 3, True),
    ((19, 8), 5, 9, True),
    ((7,), 12, 2, False),
]
"""Shapes of rows, columns of an expert, experts, and whether there is a bias."""

FORMS = [(4, 16, "packed"), (8, 32, ""), (2, 16, "whole"), (4, 32, ""), (8, 16, "whole")]
"""Bits, blocks, and zero points."""


def _indices(drawing: Drawing, shape: tuple[int, ...], experts: int, wide: bool) -> str:
    """An input of indices, some negative and some out of range; the last expert but one has no row."""
    random, name = drawing.random, "experts"
    drawn = random.integers(-experts - 2, experts + 3, shape)
    idle = np.clip(np.where(drawn < 0, drawn + experts, drawn), 0, experts - 1) == experts - 2
    element = ElementType.INT64 if wide else ElementType.INT32
    drawing.inputs[name] = np.where(idle, experts - 1, drawn).astype(element.dtype)
    return name


def product(
    shape: tuple[int, ...], columns: int, experts: int, bias: bool, bits: int = 0, integers: bool = False
) -> Maker:
    """Of rows, with weights of floats, or in blocks; bits: which of FORMS, by its place, counted from 1.

    integers: whether rows are integers, with scales that are measured.
    """

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing("product_of_experts" if not bits else "product_of_experts_in_blocks", random)
        b, depth, total = drawing.builder, shape[-1], columns * experts
        x, wide = drawing.real(*shape), bool(bits % 2)
        name = _indices(drawing, shape[:-1], experts, wide)
        element = ElementType.INT64 if wide else ElementType.INT32
        chosen = b.input(name, TensorType(element, shape[:-1]))
        terms = b.constant("bias", drawing.weights(total)) if bias else None
        lo = 0.0 if bias else -math.inf
        if not bits:
            drawing.inputs[x.name] = drawing.weights(*shape)
            w = b.constant("w", drawing.weights(depth, total))
            return drawing.finish(b.node(ExpertGemm(experts, lo), x, w, chosen, terms), exact=False)
        width, block, zeros = FORMS[bits - 1]
        levels, blocks = 1 << width, (block_count(depth, block), total)
        w = b.constant("w", pack(random.integers(0, levels, (depth, total)), width))
        scales = b.constant("scales", np.abs(drawing.weights(*blocks)) + np.float32(1e-3))
        found = random.integers(0, levels, blocks).astype(np.uint8)
        points = None
        if zeros:
            points = b.constant("zeros", pack(found, width) if zeros == "packed" else found)
        operator = ExpertBlockGemm(experts, width, block, lo)
        if integers:
            whole, by_rows = integers_of_rows(b, x)
            return drawing.finish(b.node(operator, whole, w, scales, chosen, points, terms, by_rows))
        return drawing.finish(b.node(operator, x, w, scales, chosen, points, terms))

    return make


PROBLEMS: list[Maker] = [
    *(product(*size) for size in SIZES),
    *(product(*size, bits=1 + number % (len(FORMS) - 1)) for number, size in enumerate(SIZES)),
    *(product(*SIZES[2], bits=number) for number in (1, 2, 3)),
    *(product(*SIZES[number], bits=form, integers=True) for number, form in enumerate((1, 2, 3, 4))),
    *(product(*SIZES[number], bits=5, integers=True) for number in (0, 2)),
]
"""Products of floats, and with weights in blocks, of floats and of integers."""
