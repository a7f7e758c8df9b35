"""Reductions along an axis whose size a call decides: means are sums, divided by a number of elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from qglow.core.types import QUANTIZED_BITS, Array, ElementType, Quantization
from qglow.counts.twins import twins_of
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Div, Mul
from qglow.graph.ops.functions import Round
from qglow.graph.ops.quantize import Dequantize, Quantize
from qglow.graph.ops.shape import Cast
from qglow.graph.rewriting import computed_before, operand

Sum = tuple[Operator, tuple[int, ...]]
"""A sum and the axes of its elements."""
_EXACT = 1 << 24
"""Integers below it are float32 numbers, and so are sums of them."""
_SCALES = 2.0**-60, 2.0**60
"""Scales whose products with such integers, and quotients, are normal float32 numbers."""


def divide_sums(graphs: Sequence[Graph]) -> None:
    """Turn means into sums and divisions, where sizes decide how many elements they are of.

    graphs: the same model in several sizes, all of which are changed alike. No bit changes: a mean of floats
    is that quotient (rule 9 of the numeric contract), and one of int8 (rule 6) is computed in float32 numbers
    that hold its integers. The numbers of places are constants of int64.
    """
    for twins in twins_of(graphs):
        sums = [found for node in twins if (found := _sum(node)) is not None]
        if len(sums) < len(twins):
            continue
        extents = [
            tuple(operand(node, 0).type.shape[axis] for axis in axes)
            for node, (_, axes) in zip(twins, sums, strict=True)
        ]
        if len(set(extents)) == 1:
            continue
        counted = [len(set(along)) > 1 for along in zip(*extents, strict=True)]
        for graph, node, (total, _), own in zip(graphs, twins, sums, extents, strict=True):
            work = _Work(graph, node, total)
            work.divide(
                prod(n for n, varies in zip(own, counted, strict=True) if not varies),
                [n for n, varies in zip(own, counted, strict=True) if varies],
            )


def reduce_windows(graphs: Sequence[Graph]) -> None:
    """Turn pools whose only window is the whole image into reductions, where sizes decide the image."""
    for twins in twins_of(graphs):
        known = (node.operator.reduction_of_image(node.input_types()) for node in twins)
        found: list[Operator] = [reduction for reduction in known if reduction is not None]
        if len(found) == len(twins) and len({operand(node, 0).type.shape for node in twins}) > 1:
            for node, reduction in zip(twins, found, strict=True):
                node.operator = reduction


def _sum(node: Node) -> Sum | None:
    """The sum over the elements of which a node is the mean; None where its parts have other bits."""
    found, y = node.operator.divided_sum, node.output.type
    if found is None or not y.shape:
        return None
    x = operand(node, 0).type
    if x.quantization is None or y.quantization is None:
        return found if x.is_float and not x.is_quantized and not y.is_quantized else None
    exact = _is_exact(x.quantization, prod(x.shape[axis] for axis in found[1]))
    return found if exact and _is_exact(y.quantization) else None


def _is_exact(quantization: Quantization, elements: int = 1) -> bool:
    """Whether float32 holds the integers of as many elements in one scale, and their sum."""
    if len(quantization.scales) > 1 or quantization.fixed_point:
        return False
    zero_point, most = quantization.zero_point, QUANTIZED_BITS[quantization.element] - 1
    span = max(2**most - 1 - zero_point, zero_point + 2**most)
    return span * elements < _EXACT and _SCALES[0] < quantization.scale < _SCALES[1]


@dataclass
class _Work:
    """The nodes in front of a mean."""

    graph: Graph
    node: Node
    sum: Operator

    def divide(self, fixed: int, counted: Sequence[int]) -> None:
        """Divide the sum by `fixed` and by the numbers of places along axes that are counted."""
        elements = [self._real(self._constant("places", np.array([n], np.int64))) for n in counted]
        if fixed != 1:
            elements.append(self._constant("elements", np.array([fixed], np.float32)))
        number = elements[0]
        for other in elements[1:]:
            number = self._add("elements", Mul(), number, other)
        x, node = operand(self.node, 0), self.node
        before, behind = x.type.quantization, node.output.type.quantization
        if before is None or behind is None:
            node.operator, node.inputs = Div(), (self._add("sum", self.sum, x), number)
            return
        total = self._real(self._add("sum", self.sum, self._steps(x, before)))
        divisor = self._add("divisor", Mul(), self._scale(behind), number)
        multiplier = self._add("multiplier", Div(), self._scale(before), divisor)
        mean = self._add("mean", Round(), self._add("product", Mul(), total, multiplier))
        node.operator, node.inputs = Quantize(), (self._add("real", Mul(), mean, self._scale(behind)),)

    def _steps(self, x: Value, before: Quantization) -> Value:
        """Integers less the zero point: what Dequantize gives is less than half a step from their product."""
        real = self._add("reals", Dequantize(), x)
        steps = self._add("steps", Round(), self._add("quotients", Div(), real, self._scale(before)))
        return self._add("integers", Cast(ElementType.INT32), steps)

    def _real(self, value: Value) -> Value:
        return self._add("count", Cast(ElementType.FLOAT), value)

    def _scale(self, quantization: Quantization) -> Value:
        return self._constant("scale", np.array([quantization.scale], np.float32))

    def _constant(self, part: str, data: Array) -> Value:
        return constant(self.graph.unique_name(f"{self.node.name}__{part}"), data)

    def _add(self, part: str, operator: Operator, *inputs: Value) -> Value:
        return computed_before(self.graph, self.node, part, operator, *inputs)
