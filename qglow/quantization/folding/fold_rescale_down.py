"""A Rescale disappears into the operators that read it, if they accept operands of any parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Pass, PassLog
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import Accumulate, Products, Rescaled, Table, Unify
from qglow.graph.rewriting import operand
from qglow.quantization.assign import needs_narrow
from qglow.quantization.folding.editing import contains, covered, limits, parameters, remove_unused, unbounded


@dataclass(frozen=True)
class FoldRescaleDown(Pass[Graph]):
    """Users read the rescale's operand itself: one rounding less. Its saturation must be harmless."""

    name: ClassVar[str] = "fold-rescale-down"

    def run(self, ir: Graph, log: PassLog) -> None:
        """Run the pass as the class describes it."""
        for node in list(ir.nodes):
            if node.operator.rescales:
                for user in node.output.users():
                    if log.exhausted:
                        return
                    _fold(node, user, log)
        remove_unused(ir)


def _fold(node: Node, user: Node, log: PassLog) -> None:
    source = operand(node)
    if _repeats(node, user):
        user.inputs = [source if value is node.output else value for value in user.inputs]
        log.applied(node.name, f"{user} rescales its operand just so")
        return
    if not _takes_any(user):
        log.refused(node.name, f"{user} shares parameters with its operands")
        return
    if parameters(source).is_wide and not parameters(node.output).is_wide and needs_narrow(user):
        log.refused(node.name, f"{user} reads int8")
        return
    if not contains(limits(node), covered(source)) and not contains(limits(node), _reach(source)):
        log.refused(node.name, f"its saturation may matter to {user}")
        return
    user.inputs = [source if value is node.output else value for value in user.inputs]
    log.applied(node.name, f"{user} reads the rescale's operand, rounding once less", exact=False)


def _repeats(node: Node, user: Node) -> bool:
    """Whether `user`, given the rescale's operand, computes the very rescale itself."""
    policy = user.operator.policy
    same = unbounded(node.operator) and parameters(node.output) == user.output.type.quantization
    return same and isinstance(policy, Unify) and policy.rescales


def _takes_any(user: Node) -> bool:
    if user.operator.dequantizes:
        return True
    policy = user.operator.policy
    if isinstance(policy, Unify):
        return policy.rescales
    return isinstance(policy, Accumulate | Products | Rescaled | Table)


def _reach(value: Value) -> tuple[float, float]:
    """The reals that the value's producer can give: its bounds narrow the range of the type."""
    low, high = covered(value)
    bounds = (low, high) if value.producer is None else value.producer.operator.bounds
    return max(low, bounds[0]), min(high, bounds[1])
