"""Diagnosis of the loss of an int8 model: places, kinds of error, channels, and changes that were tried."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from qglow.display.blocks import Block, Listing, Paragraph, Section, decibels, facts, percent, table
from qglow.display.frames import frame
from qglow.display.lines import brief, counted
from qglow.display.plots import draw_bars
from qglow.display.shown import Shown
from qglow.report.layer_report import LayerError
from qglow.report.metrics import ErrorSummary

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

GAIN = 0.1
"""dB; what gains less is no suggestion."""
_IDEAL, _CLIPS = 0.289, 0.5
_MANY_CLIPPED = 0.001
_NAMED = 6
"""Number of channels that are named."""


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


@dataclass(frozen=True, repr=False)
class Diagnosis(Shown):
    """Every node that adds an error, in the order of the graph, and what was tried.

    samples: on how many the noise was measured. tried: None if there was no profile to try with.
    """

    samples: int
    nodes: tuple[NodeDiagnosis, ...]
    tried: tuple[TriedChange, ...] | None = None

    def __repr__(self) -> str:
        worst = self.ranked()[:1]
        ending = [f"; '{brief(x.node)}' makes {percent(self.share(x))} of the noise" for x in worst]
        nodes, samples = counted(len(self.nodes), "node"), counted(self.samples, "sample")
        return f"Diagnosis({nodes} over {samples}: SQNR {decibels(self.sqnr_db)}{''.join(ending)})"

    def _sections(self) -> tuple[Section, ...]:
        return (diagnosis_section(self),)

    def to_frame(self) -> pandas.DataFrame:
        """One row for each node, the one that costs most first. Raises UsageError if pandas is not installed.

        share: of all noise at the outputs, 0 to 1; weights, rounding, clipping: relative to the power of the
        outputs.
        """
        columns = (
            "node",
            "operator",
            "value",
            "share",
            "weights",
            "rounding",
            "clipping",
            "rmse",
            "saturated",
        )
        rows = (
            (x.node, x.operator, x.value, self.share(x))
            + (x.noise.weights, x.noise.rounding, x.noise.clipping, x.rmse, x.saturated)
            for x in self.ranked()
        )
        return frame(columns, rows)

    def plot(self, axes: Axes | None = None, *, most: int = 20) -> Axes:
        """Draw the nodes' shares of the noise at the outputs by kind, the node that costs most first.

        most: how many nodes. axes: where to draw (default: a new figure). Raises UsageError if matplotlib is
        not installed.
        """
        shown, total = self.ranked()[:most], self.noise.total or 1.0
        series = {
            "weights": [100.0 * x.noise.weights / total for x in shown],
            "rounding": [100.0 * x.noise.rounding / total for x in shown],
            "clipping": [100.0 * x.noise.clipping / total for x in shown],
        }
        return draw_bars(axes, [x.node for x in shown], series, "per cent of the noise at the outputs")

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


def diagnosis_section(diagnosis: Diagnosis) -> Section:
    """Nodes by what they cost the outputs, the most expensive first, and what was tried against it."""
    note = Paragraph(
        "noise: share of the errors at the model's outputs that this node makes alone; weights, rounding, "
        f"clipping: the parts of it. RMSE: of the result over its scale, {_IDEAL} where int8 only rounds, "
        f"above {_CLIPS} where it clips. saturated: share of the result out of range. dead: channels that "
        "are constant. outliers: channels of far larger range than the median, and how many times as far the "
        "largest one reaches."
    )
    titles = (
        "node",
        "operator",
        "noise>",
        "weights>",
        "rounding>",
        "clipping>",
        "RMSE>",
        "saturated>",
        "dead>",
        "outliers>",
    )
    rows = [_row(node, diagnosis) for node in diagnosis.ranked()]
    blocks: list[Block] = [Paragraph(_summary(diagnosis)), note, table(titles, rows)]
    return Section(f"Diagnosis over {diagnosis.samples} samples", (*blocks, *suggestion_blocks(diagnosis)))


def _summary(diagnosis: Diagnosis) -> str:
    noise = diagnosis.noise
    return (
        f"Predicted from every error alone, the outputs have {decibels(diagnosis.sqnr_db)}. "
        f"Of that noise: {_kinds(noise)}."
    )


def _kinds(noise: Noise) -> str:
    """The three kinds by their shares."""
    total = noise.total or 1.0
    kinds = (("weights", noise.weights), ("rounding", noise.rounding), ("clipping", noise.clipping))
    return ", ".join(f"{percent(part / total)} {name}" for name, part in kinds)


def _row(node: NodeDiagnosis, diagnosis: Diagnosis) -> tuple[str, ...]:
    total = diagnosis.noise.total or 1.0
    kinds = (node.noise.weights, node.noise.rounding, node.noise.clipping)
    return (
        node.node,
        node.operator,
        percent(diagnosis.share(node)),
        *("" if not kind else percent(kind / total) for kind in kinds),
        "" if node.rmse is None else f"{node.rmse:.3f}",
        "" if node.saturated is None else percent(node.saturated),
        str(len(node.dead) or ""),
        _outliers(node),
    )


def _outliers(node: NodeDiagnosis) -> str:
    return f"{len(node.outliers)} (to {node.largest:.0f}x)" if node.outliers and node.largest else ""


def suggestion_blocks(diagnosis: Diagnosis) -> list[Block]:
    """Changes that were tried and helped, with the measured gains, and the rules for a recipe."""
    if diagnosis.tried is None:
        return [Paragraph("Nothing was tried against it: that needs the profile, which was not given.")]
    found = diagnosis.suggestions()
    if not found:
        best = max(diagnosis.tried, key=lambda change: change.gain_db, default=None)
        ending = "." if best is None else f"; the best was {best}."
        return [Paragraph(f"{len(diagnosis.tried)} changes were tried, none gains {GAIN} dB{ending}")]
    lines = "\n".join(f"{change} ({change.gain_db:+.1f})" for change in found)
    rules = "rules:\n" + "".join(found[0].rules)
    return [
        Paragraph(f"{len(diagnosis.tried)} changes were tried on these samples; those that help:"),
        Listing(lines),
        Paragraph("The first of them, for a recipe:"),
        Listing(rules.rstrip("\n")),
    ]


def node_section(diagnosis: Diagnosis, name: str) -> Section | None:
    """Section of facts on the errors of one node; None if nothing is known of it."""
    node = diagnosis.of(name)
    if node is None:
        return None
    rows = list(_facts(node, diagnosis))
    rows += [("tried", str(change)) for change in diagnosis.tried or () if change.where == node.node]
    rows += [
        ("tried", str(change))
        for change in diagnosis.tried or ()
        if change.where == node.value and node.value != node.node
    ]
    return Section("Errors", (facts(rows),))


def _facts(node: NodeDiagnosis, diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    place = diagnosis.ranked().index(node) + 1
    yield (
        "noise at the outputs",
        f"{percent(diagnosis.share(node))} of all, place {place} of {len(diagnosis.nodes)}"
        + (f": {_kinds(node.noise)}" if node.noise.total else ""),
    )
    if node.isolated_db is not None:
        yield "SQNR of the node alone", decibels(node.isolated_db)
    if node.accumulated_db is not None:
        yield "SQNR of the program up to it", decibels(node.accumulated_db)
    if node.rmse is not None:
        yield "RMSE over scale", f"{node.rmse:.3f}: {_reading(node.rmse)}"
    if node.saturated is not None:
        many = ", more than rare extremes" if node.saturated > _MANY_CLIPPED else ""
        yield "saturated", f"{percent(node.saturated)} of the elements{many}"
    if node.dead:
        yield "dead channels", f"{len(node.dead)}: {_numbers(node.dead)}"
    if node.outliers:
        yield (
            "outlier channels",
            f"{len(node.outliers)}: {_numbers(node.outliers)}; the largest reaches "
            f"{node.largest:.0f} times as far as the median",
        )


def _reading(rmse: float) -> str:
    if rmse > _CLIPS:
        return "something clips"
    return "int8 only rounds" if rmse <= 1.1 * _IDEAL else "it rounds, and clips a little"


def _numbers(channels: tuple[int, ...]) -> str:
    more = ", ..." if len(channels) > _NAMED else ""
    return ", ".join(map(str, channels[:_NAMED])) + more
