"""Weights of 16 bits and results that are rounded to them.

Operands are small integers and quarters, so that float32 sums are exact in every order: numpy, fused and
unfused chains all give the same, and results equal in every bit.
"""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array, ElementType, Shape, TensorType
from qglow.graph.graph import Value
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add
from qglow.graph.ops.functions import RoundTo
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.movement import Gather
from qglow.numerics.half import holds, store
from tests.suite.conv import CASES, Case
from tests.suite.problem import Drawing, Maker, Problem

ELEMENTS = ("float16", "bfloat16")
TAKEN = ("first_layer", "asymmetric_pads", "grouped", "depthwise_strided", "depth_multiplier", "single_pixel")


class HalfDrawing(Drawing):
    """Draws operands of exact sums."""

    def quarters(self, *shape: int) -> Array:
        """Multiples of 1/4 up to 8, which both types hold."""
        return (self.random.integers(-32, 33, shape) / 4).astype(np.float32)

    def exact(self, *shape: int) -> Value:
        """A float input of such numbers."""
        value = self.real(*shape)
        self.inputs[value.name] = self.quarters(*shape)
        return value

    def stored(self, element: str, *shape: int) -> Value:
        """Such numbers as constant weights in 16 bits."""
        data = self.quarters(*shape)
        assert holds(data, element)
        return self.builder.constant("w", store(data, element))

    def rounded(self, element: str, value: Value) -> Value:
        return self.builder.node(RoundTo(element), value)


def rounding(random: np.random.Generator) -> Problem:
    """Alone, and behind an Add in one loop: infinities, zeros, numbers beyond float16, its subnormals."""
    drawing = HalfDrawing("round_to", random)
    x = drawing.real(2, 3, 7, 5)
    small = drawing.real(2, 3, 7, 5)
    drawing.inputs[small.name] = (drawing.inputs[small.name] * np.float32(2.0**-16)).astype(np.float32)
    total = drawing.builder.node(Add(), x, x)
    values = [drawing.rounded(e, v) for e in ELEMENTS for v in (x, small, total)]
    return drawing.finish(*values)


def conv(name: str, case: Case, element: str) -> Maker:
    """A convolution with a bias and bounds, rounded."""

    def make(random: np.random.Generator) -> Problem:
        drawing = HalfDrawing(f"conv_{element}_{name}", random)
        shape: Shape = (case.filters, case.image[1] // case.operator.group, *case.kernel)
        x, w = drawing.exact(*case.image), drawing.stored(element, *shape)
        bias = drawing.builder.constant("bias", drawing.quarters(case.filters))
        raw = drawing.builder.node(case.operator, x, w, bias)
        return drawing.finish(raw, drawing.rounded(element, raw))

    return make


def gemm(m: int, k: int, n: int, element: str) -> Maker:
    """A product with bounds, rounded, and without a bias."""

    def make(random: np.random.Generator) -> Problem:
        drawing = HalfDrawing(f"gemm_{element}_{m}x{k}x{n}", random)
        x, w = drawing.exact(m, k), drawing.stored(element, k, n)
        bias = drawing.builder.constant("bias", drawing.quarters(n))
        bounded = drawing.builder.node(Gemm(lo=-100.0, hi=3.0), x, w, bias)
        plain = drawing.builder.node(Gemm(), x, w)
        return drawing.finish(*(drawing.rounded(element, value) for value in (bounded, plain)))

    return make


def shared(random: np.random.Generator) -> Problem:
    """Equal layers with weights of every type: none may run the code of another."""
    drawing = HalfDrawing("half_and_float", random)
    data, x = drawing.quarters(8, 3, 3, 3), drawing.exact(1, 3, 6, 6)
    stored = [data, *(store(data, element) for element in ELEMENTS)]
    weights = [drawing.builder.constant("w", array) for array in stored]
    return drawing.finish(*(drawing.builder.node(Conv(), x, w) for w in weights))


def held(m: int, k: int, n: int, element: str) -> Maker:
    """A product by float32 weights that 16 bits hold, and rows of a table of such numbers."""

    def make(random: np.random.Generator) -> Problem:
        drawing = HalfDrawing(f"held_{element}_{m}x{k}x{n}", random)
        x = drawing.exact(m, k)
        # float16 has no number of this size, bfloat16 none with digits so far apart.
        odd = np.float32(2.0**16 if element == "bfloat16" else 8.0 + 2.0**-7)
        data, table = drawing.quarters(k, n), drawing.quarters(n, k + 1)
        data[0, 0] = table[1, 2] = odd
        y = drawing.builder.node(Gemm(lo=-100.0), x, drawing.builder.constant("w", data))
        drawing.inputs["indices"] = random.integers(-n, n, (2, m))
        indices = drawing.builder.input("indices", TensorType(ElementType.INT64, (2, m)))
        return drawing.finish(
            y, drawing.builder.node(Gather(), drawing.builder.constant("t", table), indices)
        )

    return make


PROBLEMS: list[Maker] = [
    rounding,
    *(conv(name, CASES[name], ELEMENTS[number % 2]) for number, name in enumerate(TAKEN)),
    conv("depthwise_strided", CASES["depthwise_strided"], "float16"),
    *(gemm(m, k, n, e) for e in ELEMENTS for m, k, n in ((1, 1, 1), (1, 300, 202), (17, 33, 16))),
    shared,
    *(held(m, k, n, e) for e in ELEMENTS for m, k, n in ((1, 300, 202), (3, 127, 130), (17, 512, 33))),
]
