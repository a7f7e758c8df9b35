"""Integers that a model keeps for its weights become the float constants that they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.passes import Refused
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.rewriting import Outcome, RewritePass, dequantized_constant
from qglow.numerics.quantize import dequantize_by


@dataclass(frozen=True)
class DequantizeConstants(RewritePass):
    """Evaluate every Dequantize of a constant: for programs that compute in float.

    Not part of the canonical form: quantization takes the integers as they are.
    """

    name: ClassVar[str] = "dequantize-constants"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Replace the result of one node by a constant of the same name."""
        if not node.operator.dequantizes:
            return None
        integers = dequantized_constant(node.output)
        if integers is None or integers.data is None or integers.type.quantization is None:
            return Refused("its integers are computed by the graph")
        data = np.asarray(dequantize_by(integers.data, integers.type.quantization), np.float32, order="C")
        graph.replace_value(node.output, Value(node.output.name, node.output.type, data))
        graph.remove(node)
        return f"%{integers.name} dequantized"
