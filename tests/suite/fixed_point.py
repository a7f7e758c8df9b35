"""Integer problems of other families with sums that are brought to int8 in fixed point."""

from __future__ import annotations

import dataclasses

import numpy as np

from qglow.core.types import Quantization
from qglow.exporter.operators import steps_in_fixed_point
from qglow.graph.graph import Graph
from qglow.graph.ops.elementwise import Add, Mul, Sub
from qglow.graph.ops.quantize import Rescale
from qglow.quantization.choices import Choices
from qglow.quantization.fixed_point import round_in_fixed_point
from qglow.recipe.schema import Recipe
from tests.suite import conv, elementwise, linear, pool, reduce, selection, wide
from tests.suite.problem import Drawing, Maker, Problem

SHAPE = (2, 19, 5, 3)
RATIOS = (2.0**-28, 0.011, 0.5, 1.0, 3.7, 2.0**9)
"""Scales of operands divided by those of results: from nothing but zero points to saturation."""


def marked(make: Maker) -> Maker:
    """The problem with every int8 value marked."""

    def fixed(random: np.random.Generator) -> Problem:
        problem = make(random)
        mark(problem.graph)
        return dataclasses.replace(problem, name=f"fixed_{problem.name}")

    return fixed


def mark(graph: Graph) -> None:
    """Choose fixed point for a whole graph."""
    round_in_fixed_point(graph, Choices.of(graph, Recipe(requantization="fixed")))


def rescales(make: Maker) -> bool:
    """Whether a drawn problem has sums in fixed point."""
    graph = marked(make)(np.random.default_rng(0)).graph
    return any(steps_in_fixed_point(node) is not None for node in graph.nodes)


def at_ratio(ratio: float, zero_point: int) -> Maker:
    """Rescales, sums and products whose results have a scale far from those of the operands."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"ratio_{ratio}", random)
        operands = [drawing.integers(*SHAPE, zero_point=zero) for zero in (zero_point, -3)]
        scale = operands[0].type.quantization
        assert scale is not None
        results = []
        for operator in (Add(), Sub(lo=0.0), Rescale()):
            kind = operands[0].type.quantized(Quantization.per_tensor(scale.scale / ratio, zero_point))
            inputs = operands[:1] if isinstance(operator, Rescale) else operands
            results.append(drawing.builder.node(operator, *inputs, output_types=[kind]))
        other = operands[1].type.quantization
        assert other is not None
        kind = kind.quantized(Quantization.per_tensor(scale.scale * other.scale / ratio, zero_point))
        results.append(drawing.builder.node(Mul(), *operands, output_types=[kind]))
        return drawing.finish(*results)

    return make


OTHERS = (conv, elementwise, linear, pool, reduce, selection, wide)
PROBLEMS: list[Maker] = [marked(at_ratio(ratio, zero)) for ratio in RATIOS for zero in (-128, 40)]
PROBLEMS += [marked(make) for family in OTHERS for make in family.PROBLEMS[::2] if rescales(make)]
