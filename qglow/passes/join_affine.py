"""Affine of an Affine, as one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.passes import Refused
from qglow.graph.graph import Graph, Node, Origin
from qglow.graph.ops.elementwise import Mul
from qglow.graph.ops.normalization import Affine
from qglow.graph.rewriting import Outcome, RewritePass, fuse, new_constant, operand, private, producer_of
from qglow.passes.fold_batchnorm import channel_factors


@dataclass(frozen=True)
class JoinAffine(RewritePass):
    """(x * r + t) * s + u is x * (r s) + (t s + u), computed in float64 and rounded once."""

    name: ClassVar[str] = "join-affine"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Join one Affine with the one before it."""
        if not isinstance(node.operator, Affine):
            return None
        x = operand(node, 0)
        inner = producer_of(x, Affine)
        if inner is None:
            return None
        refusal = private(graph, x) or _bounded(inner)
        if refusal is not None:
            return refusal
        first, second = channel_factors(inner), channel_factors(node)
        if isinstance(first, Refused):
            return first
        if isinstance(second, Refused):
            return second
        with np.errstate(over="ignore"):
            r = np.asarray(first[0] * second[0], np.float32)
            t = np.asarray(first[1] * second[0] + second[1], np.float32)
        if not (np.all(np.isfinite(r)) and np.all(np.isfinite(t))):
            return Refused("the joined factors are not finite")
        names = f"{inner.name}.scale.joined", f"{inner.name}.shift.joined"
        constants = [new_constant(graph, name, part) for name, part in zip(names, (r, t), strict=True)]
        scales = operand(inner, 1), operand(node, 1)
        if any(scale.origin is not None for scale in scales):
            constants[0].origin = Origin(Mul(), *scales)  # the float64 product is exact
        fuse(graph, inner, node, node.operator, [operand(inner, 0), *constants])
        return f"joined with Affine '{inner.name}'"


def _bounded(inner: Node) -> Refused | None:
    operator = inner.operator
    assert isinstance(operator, Affine)
    if operator.lo > -math.inf or operator.hi < math.inf:
        return Refused(f"Affine '{inner.name}' has bounds, which come before it")
    if inner.output.type.is_quantized or operand(inner, 0).type.is_quantized:
        return Refused(f"Affine '{inner.name}' is quantized")
    return None
