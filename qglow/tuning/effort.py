"""How much work goes into a quantization: which candidates are tried, and on how many samples."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from qglow.graph.graph import Graph
from qglow.graph.operator import Accumulate
from qglow.recipe.choices import Calibration
from qglow.recipe.rules import Match, Rule
from qglow.tuning.ranges import RangeChoice

FAST = "fast"

CANDIDATES = ("auto", "minmax", "kl", "mse", "percentile:99.9", "percentile:99.99", "percentile:99.999")
"""Calibrations whose ranges are compared; of equal ones the first is taken."""


@dataclass(frozen=True, slots=True)
class Effort:
    """candidates: calibrations to choose from. multiply_adds: that all runs together may take, about.

    fewest: runs over inputs that are done in any case. float_share: how much longer, as a share, the
    program may take by nodes in int16 or float, where int8 costs the outputs most.
    """

    candidates: tuple[str, ...]
    multiply_adds: float
    fewest: int
    float_share: float = 0.0

    def runs(self, graph: Graph, values: int, available: int) -> int:
        """For how many of the available inputs to try all values: the same number on every machine."""
        an_input = multiply_adds(graph) * values * len(self.candidates)
        affordable = math.floor(self.multiply_adds / max(an_input, 1.0))
        return min(available, max(self.fewest, affordable))


EFFORTS = {
    "balanced": Effort(CANDIDATES, 3e12, 16, 0.05),
    "best": Effort((*CANDIDATES, "percentile:99.5", "percentile:99.97"), 1e13, 32, 0.2),
}
"""By name; FAST is none of this work."""


def multiply_adds(graph: Graph) -> float:
    """Multiplications with constant weights in a run of the graph."""
    total = 0.0
    for node in graph.nodes:
        policy = node.operator.policy
        weights = node.operand(policy.w) if isinstance(policy, Accumulate) else None
        if weights is None:
            continue
        shape = weights.type.shape
        a_result = math.prod(shape[1:]) if len(shape) == 4 else shape[0]
        total += float(node.output.type.size * a_result)
    return total


LEAST_GAIN = 0.02
"""Share of the predicted noise that a step towards int16 or float has to take away."""


def rules_for(choices: Sequence[RangeChoice], calibration: Calibration) -> tuple[Rule, ...]:
    """A rule for each calibration that is best for some values, and is not the recipe's own."""
    found: dict[str, list[str]] = {}
    for choice in choices:
        if choice.best != str(calibration):
            found.setdefault(choice.best, []).append(re.escape(choice.value))
    return tuple(
        Rule(Match(name="|".join(names)), calibration=Calibration.parse(best))
        for best, names in found.items()
    )
