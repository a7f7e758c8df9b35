"""Diagnosis of the loss of an int8 model: places, kinds of error, channels, and changes that were tried."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from qglow.report.layers import LayerError
from qglow.report.metrics import ErrorSummary

GAIN = 0.1
"""dB; what gains less is no suggestion."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Noise at the model's outputs from one place's errors alone, relative to the power of the outputs.

    weights: from rounding the weights of the node. rounding, clipping: from bringing its result to int8.
    """

    weights: float
    rounding: float
    clipping: float

    @property
    def total(self) -> float:
        """All three, which are small and so add up."""
        return self.weights + self.rounding + self.clipping


@dataclass(frozen=True, slots=True)
class NodeDiagnosis:
    """One node of the int8 graph and its result, `value`.

    isolated_db, accumulated_db: SQNR of the node alone, and of the program up to it. rmse: of the result
    over its scale, 0.289 where int8 only rounds. saturated: share of the result that int8 cannot reach, 0
    to 1. dead, outliers: numbers of channels of the result in the profile that are constant, and that
    reach far beyond the rest; largest: how many times as far as the median the largest one reaches. What
    is not known is None.
    """

    node: str
    operator: str
    value: str
    noise: Noise
    isolated_db: float | None = None
    accumulated_db: float | None = None
    rmse: float | None = None
    saturated: float | None = None
    dead: tuple[int, ...] = ()
    outliers: tuple[int, ...] = ()
    largest: float | None = None


@dataclass(frozen=True, slots=True)
class TriedChange:
    """A change of the recipe, and the SQNR in dB of the outputs before and with it, both measured.

    where: the node or value, empty for several changes at once. rules: of the recipe, as in its file.
    """

    where: str
    what: str
    before_db: float
    after_db: float
    rules: tuple[str, ...]

    @property
    def gain_db(self) -> float:
        """Gain of the change in dB; negative if it loses."""
        return 0.0 if self.before_db == self.after_db else self.after_db - self.before_db

    def __str__(self) -> str:
        place = f" on '{self.where}'" if self.where else ""
        return f"{self.what}{place}: SQNR {self.before_db:.1f} -> {self.after_db:.1f} dB"


@dataclass(frozen=True)
class Diagnosis:
    """Every node that adds an error, in the order of the graph, and what was tried.

    samples: on how many the noise was measured. tried: None if there was no profile to try with.
    """

    samples: int
    nodes: tuple[NodeDiagnosis, ...]
    tried: tuple[TriedChange, ...] | None = None

    @property
    def noise(self) -> Noise:
        """The sums over all nodes."""
        if not self.nodes:
            return Noise(0.0, 0.0, 0.0)
        kinds = ((n.noise.weights, n.noise.rounding, n.noise.clipping) for n in self.nodes)
        weights, rounding, clipping = (sum(kind) for kind in zip(*kinds, strict=True))
        return Noise(weights, rounding, clipping)

    @property
    def sqnr_db(self) -> float:
        """SQNR of the outputs in dB with the noise of all places together."""
        total = self.noise.total
        return -10.0 * math.log10(total) if total > 0.0 else math.inf

    def ranked(self) -> list[NodeDiagnosis]:
        """The nodes, the one that costs the outputs most first."""
        return sorted(self.nodes, key=lambda x: -x.noise.total)

    def share(self, node: NodeDiagnosis) -> float:
        """The part of all noise at the outputs, 0 to 1, that comes from a node."""
        total = self.noise.total
        return node.noise.total / total if total > 0.0 else 0.0

    def suggestions(self) -> list[TriedChange]:
        """Changes that were tried and helped, best first."""
        helped = [change for change in self.tried or () if change.gain_db >= GAIN]
        return sorted(helped, key=lambda change: -change.gain_db)

    def of(self, node: str) -> NodeDiagnosis | None:
        """Diagnosis of a node, found by its name or its result's; None if there is none."""
        return next((x for x in self.nodes if node in (x.node, x.value)), None)


def with_errors(node: NodeDiagnosis, layers: Iterable[LayerError]) -> NodeDiagnosis:
    """A node with what a comparison by layers has measured of it."""
    layer = next((x for x in layers if x.node == node.node), None)
    if layer is None:
        return node
    return replace(
        node,
        isolated_db=_level(layer.isolated),
        accumulated_db=_level(layer.accumulated),
        rmse=layer.rounding,
        saturated=layer.saturated,
    )


def _level(errors: ErrorSummary | None) -> float | None:
    return None if errors is None else errors.sqnr_db
