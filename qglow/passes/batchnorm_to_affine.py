"""BatchNormalization that folds into no weights, as one multiplication and addition a channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.passes import Refused
from qglow.graph.graph import Graph, Node
from qglow.graph.ops.normalization import Affine, BatchNormalization
from qglow.graph.rewriting import Outcome, RewritePass, change, new_constant, operand
from qglow.passes.fold_batchnorm import channel_factors


@dataclass(frozen=True)
class BatchnormToAffine(RewritePass):
    """Fold stored statistics into a scale and a shift, float64 rounded once."""

    name: ClassVar[str] = "batchnorm-to-affine"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Turn one BatchNormalization into an Affine."""
        if not isinstance(node.operator, BatchNormalization):
            return None
        factors = channel_factors(node)
        if isinstance(factors, Refused):
            return factors
        names = f"{node.name}.scale", f"{node.name}.shift"
        constants = []
        for name, values in zip(names, factors, strict=True):
            with np.errstate(over="ignore"):
                constants.append(new_constant(graph, name, values.astype(np.float32)))
        change(node, Affine(), [operand(node, 0), *constants])
        return "BatchNormalization becomes Affine"
