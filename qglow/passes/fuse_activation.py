"""Relu and Clip into the bounds of the operator before them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Refused
from qglow.graph.graph import Graph, Node
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add, Clamp, Div, Mul, Pow, Sub
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.normalization import Affine
from qglow.graph.rewriting import Outcome, RewritePass, fuse, operand, private, producer_of


@dataclass(frozen=True)
class FuseActivation(RewritePass):
    """Let Conv, Gemm, Affine and arithmetic on two operands clamp their own result."""

    name: ClassVar[str] = "fuse-activation"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Fuse one Relu or Clip into its producer."""
        if not isinstance(node.operator, Clamp):
            return None
        x = operand(node, 0)
        producer = producer_of(x, Conv, Gemm, Affine, Add, Sub, Mul, Div, Pow)
        if producer is None:
            source = "an input" if x.producer is None else f"the result of {x.producer.operator.name}"
            return Refused(f"%{x.name} is {source}, which takes no bounds")
        refusal = private(graph, x)
        if refusal is not None:
            return refusal
        if x.type.is_quantized or node.output.type.is_quantized:
            return Refused(f"%{x.name} is quantized: its range is settled")
        operator = producer.operator
        assert isinstance(operator, Conv | Gemm | Affine | Add | Sub | Mul | Div | Pow)
        lo, hi = compose_bounds((operator.lo, operator.hi), node.operator.bounds)
        fuse(graph, producer, node, dataclasses.replace(operator, lo=lo, hi=hi), producer.inputs)
        return f"{node.operator.name} becomes bounds of {operator.name} '{producer.name}'"


def compose_bounds(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """The one clamp that does what the first and then the second do.

    A clamp whose lower bound lies above its upper one gives the upper one.
    """
    lo, hi = (min(max(bound, second[0]), second[1]) for bound in first)
    return min(lo, hi), hi
