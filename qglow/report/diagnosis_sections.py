"""A diagnosis in a document: where the noise at the outputs comes from, channels, suggestions."""

from __future__ import annotations

from collections.abc import Iterator

from qglow.display.blocks import Block, Listing, Paragraph, Section, decibels, facts, percent, table
from qglow.report.diagnosis import GAIN, Diagnosis, NodeDiagnosis, Noise

_IDEAL, _CLIPS = 0.289, 0.5
_MANY_CLIPPED = 0.001
_NAMED = 6
"""Number of channels that are named."""


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
