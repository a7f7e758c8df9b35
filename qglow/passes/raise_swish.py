"""x times its own sigmoid as one operator, whose int8 form is one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.passes import Refused
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Mul
from qglow.graph.ops.functions import HardSigmoid, HardSwish, Sigmoid, Swish
from qglow.graph.rewriting import Outcome, RewritePass, fuse, operand, private, producer_of


@dataclass(frozen=True)
class RaiseSwish(RewritePass):
    """Mul of x with its Sigmoid becomes Swish, with its HardSigmoid of slope 1/6 HardSwish."""

    name: ClassVar[str] = "raise-swish"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Raise one Mul."""
        if node.operator != Mul():
            return None
        for x, gate in (tuple(node.inputs), tuple(reversed(node.inputs))):
            assert x is not None and gate is not None
            outcome = _raise(graph, node, x, gate)
            if outcome is not None:
                return outcome
        return None


def _raise(graph: Graph, node: Node, x: Value, gate: Value) -> Outcome:
    producer = producer_of(gate, Sigmoid, HardSigmoid)
    if producer is None or operand(producer, 0) is not x:
        return None
    if x.type.is_quantized or node.output.type.is_quantized:
        return Refused(f"%{x.name} is quantized: its range is settled")
    operator = _raised(producer.operator)
    if isinstance(operator, Refused):
        return operator
    refusal = private(graph, gate)
    if refusal is not None:
        return refusal
    gate_name = producer.operator.name
    fuse(graph, producer, node, operator, [x])
    return f"%{x.name} times its {gate_name} becomes {operator.name}"


def _raised(gate: Operator) -> Operator | Refused:
    if isinstance(gate, Sigmoid):
        return Swish()
    if gate == HardSigmoid(alpha=float(np.float32(1 / 6)), beta=0.5):
        return HardSwish()
    assert isinstance(gate, HardSigmoid)
    return Refused(f"a HardSigmoid of {gate.alpha:g} x + {gate.beta:g} is not the gate of a HardSwish")
