"""Sections of a document on quantization: coverage, reasons, regions and their borders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from qglow.core.types import ElementType
from qglow.display.blocks import Block, Gallery, Paragraph, Section, byte_count, facts, significant, table
from qglow.display.node_panel import NodePanel
from qglow.quantization.report import IslandReport, QuantizationReport
from qglow.report.graph_picture import graph_picture
from qglow.report.pictures import histogram_picture

_DIRECTIONS = {"in": "into int8", "out": "out of int8"}


STATED = "Nodes in int8 by rule"
_SHORT = ("Quantization", "Repairs", STATED, "Nodes in float")


def quantization_sections(report: QuantizationReport) -> list[Section]:
    """The summary, then nodes that stay float, int8 regions and int8 nodes, as far as there are any."""
    sections = [Section("Quantization", (facts(summary_facts(report)),))]
    if report.repairs:
        sections.append(_repairs(report))
    stated = [(node.name, node.operator, node.because) for node in report.quantized if node.because]
    if stated:
        sections.append(Section(STATED, (table(("node", "operator", "because"), stated),)))
    if report.float_nodes:
        rows = [(node.name, node.operator, node.reason) for node in report.float_nodes]
        sections.append(Section("Nodes in float", (table(("node", "operator", "reason"), rows),)))
    if report.islands:
        sections.append(_islands(report))
    if report.quantized:
        sections.append(_quantized(report))
    return sections


def short_sections(report: QuantizationReport) -> list[Section]:
    """The sections that commands and notebooks show; report files have all of them."""
    return [section for section in quantization_sections(report) if section.title in _SHORT]


def _repairs(report: QuantizationReport) -> Section:
    rows = [
        (repair.what, *(_level(db) for db in (repair.before_db, repair.after_db, repair.won_db)))
        for repair in report.repairs
    ]
    text = (
        "SQNR of the worst output, in dB, rehearsed on samples of the profile; that of logarithms where the "
        "output is probabilities of classes."
    )
    if any(repair.before_db is None for repair in report.repairs):
        text += " Repairs without figures were chosen by what the profile saw."
    note = Paragraph(text)
    return Section("Repairs", (note, table(("repair", "before", "after", "won"), rows)))


def _level(db: float | None) -> str:
    return "" if db is None else f"{db:.1f}"


def _parameters(report: QuantizationReport) -> str:
    """Return where scales and zero points come from."""
    if report.given:
        return "the model's own, kept"
    if not report.quantized and any(node.dtype.startswith("int") for node in report.float_nodes):
        return "of weights alone, in blocks"
    dynamic = [node.dynamic for node in report.quantized]
    if dynamic and all(dynamic):
        blocks = ", and of weights in blocks" if any(node.weights for node in report.quantized) else ""
        return f"of every row, measured while the model runs{blocks}"
    return "from the profile" + (", and of rows, measured while the model runs" if any(dynamic) else "")


def summary_facts(report: QuantizationReport) -> list[tuple[str, str]]:
    """The figures that a user looks for first."""
    folded = sum(report.rescales_folded.values())
    total = len(report.quantized) + len(report.float_nodes)
    rows = [
        ("nodes in int8", f"{len(report.quantized)} of {total}{report.dynamic()}: {_operators(report)}"),
        *_wide_results(report),
        ("nodes in float", f"{len(report.float_nodes)}{report.halves()}"),
        *_hosted(report),
        *_tail(report),
        ("parameters", _parameters(report)),
        ("int8 regions", f"{len(report.islands)}, {sum(len(i.borders) for i in report.islands)} borders"),
        ("conversions and rescales", f"{folded} folded, {report.rescales_left} rescales left"),
        ("weights", _weights(report)),
    ]
    margins = [(node.margin, node.name) for node in report.quantized if node.margin is not None]
    if margins:
        margin, name = min(margins)
        rows.append(("int32 sums", f"proven not to overflow; the closest, {name}, fits {margin:.1f} times"))
    return rows


def _wide_results(report: QuantizationReport) -> list[tuple[str, str]]:
    wide = sum(node.result.startswith(ElementType.INT16.value) for node in report.quantized)
    return [("of them to int16", str(wide))] if wide else []


def _hosted(report: QuantizationReport) -> list[tuple[str, str]]:
    kinds = Counter(node.operator for node in report.float_nodes if node.hosted)
    listed = ", ".join(f"{count} {name}" for name, count in sorted(kinds.items()))
    return [("of them in onnxruntime", f"{kinds.total()}: {listed}")] if kinds else []


def _tail(report: QuantizationReport) -> list[tuple[str, str]]:
    listed = f"{len(report.tail)}: {report.tail_kinds}"
    return [("nodes behind them in onnxruntime", listed)] if report.tail else []


def _operators(report: QuantizationReport) -> str:
    counts = Counter(node.operator for node in report.quantized)
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"


def _weights(report: QuantizationReport) -> str:
    before, after = report.weight_bytes_before, report.weight_bytes_after
    share = f" ({100.0 * after / before:.0f} %)" if before else ""
    return f"{byte_count(before)} before, {byte_count(after)} after{share}"


def picture_sections(report: QuantizationReport, panels: Sequence[NodePanel]) -> list[Section]:
    """Ranges of all values, drawn and as a table, and the graph of these nodes, if there are any."""
    sections = []
    if report.tensors:
        gallery = Gallery(
            tuple(histogram_picture(tensor) for tensor in report.tensors),
            "Every value over the calibration data, heights logarithmic; shaded is what int8 covers.",
        )
        titles = ("value", "schema", "calibration", "seen>", "covered>", "clipped>", "scale>", "zero point>")
        rows = [
            (
                t.value,
                t.schema,
                t.calibration,
                f"{t.seen_low:.4g} to {t.seen_high:.4g}",
                f"{t.low:.4g} to {t.high:.4g}",
                f"{100.0 * t.clipped:.3g} %",
                significant(t.scale, 6),
                str(t.zero_point),
            )
            for t in report.tensors
        ]
        sections.append(Section("Ranges", (gallery, table(titles, rows))))
    if panels:
        sections.append(Section("Graph", (graph_picture(panels),)))
    return sections


def _islands(report: QuantizationReport) -> Section:
    blocks: list[Block] = []
    for number, island in enumerate(report.islands, start=1):
        blocks.append(Paragraph(_island_text(number, island)))
        rows = [
            (_DIRECTIONS[b.direction], b.value, str(b.elements), byte_count(b.cost), b.reason)
            for b in island.borders
        ]
        if rows:
            blocks.append(table(("conversion", "value", "elements>", "cost>", "because"), rows))
    return Section("Int8 regions", tuple(blocks))


def _island_text(number: int, island: IslandReport) -> str:
    first, last = island.nodes[0], island.nodes[-1]
    worth = (
        f"int8 is worth {byte_count(island.gain)} in it and costs {byte_count(island.cost)} at its borders"
    )
    if len(island.nodes) == 1:
        return f"Region {number}: {first}; {worth}."
    return f"Region {number}: {len(island.nodes)} nodes, from {first} to {last}; {worth}."


def _quantized(report: QuantizationReport) -> Section:
    rows = [
        (node.name, node.operator, node.result, "" if node.margin is None else significant(node.margin))
        for node in report.quantized
    ]
    return Section("Nodes in int8", (table(("node", "operator", "result", "int32 margin>"), rows),))
