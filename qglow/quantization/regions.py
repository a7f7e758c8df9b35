"""Quantization inside of regions: each is a graph of its own, between values that stay float."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from qglow.core.passes import LogEntry
from qglow.graph.graph import Node
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.report import QuantizationReport
from qglow.recipe.schema import Recipe

UNSEEN = "it never ran on the data of the profile"
"""Reason why a region stays float."""


def region_paths(node: Node) -> list[str]:
    """Paths that precede names inside of the graphs that a node runs."""
    return [f"{node.name}.{name}/" for name in node.operator.region_names]


def region_statistics(statistics: Mapping[str, ValueProfile], path: str) -> dict[str, ValueProfile]:
    """Statistics of the values inside of a region, by their names there; `path` precedes them outside."""
    return {name.removeprefix(path): seen for name, seen in statistics.items() if name.startswith(path)}


def is_unseen(statistics: Mapping[str, ValueProfile]) -> bool:
    """Whether values were profiled, but none was ever computed."""
    return bool(statistics) and not any(seen.total for seen in statistics.values())


def region_recipe(recipe: Recipe) -> Recipe:
    """The recipe without what needs statistics of channels, and without what is about the whole model."""
    return replace(
        recipe,
        io="float",
        equalize=False,
        smooth=False,
        split_channels=0.0,
        group_size=0,
        correct_bias=False,
        strict=False,
    )


def report_inside(report: QuantizationReport, path: str) -> QuantizationReport:
    """Return what a report tells of the region at `path`, by the names there."""

    def short(name: str) -> str:
        return name.removeprefix(path)

    def inside(name: str) -> bool:
        return name.startswith(path)

    islands = (tuple(filter(inside, island.nodes)) for island in report.islands)
    return replace(
        report,
        quantized=tuple(replace(n, name=short(n.name)) for n in report.quantized if inside(n.name)),
        float_nodes=tuple(replace(n, name=short(n.name)) for n in report.float_nodes if inside(n.name)),
        islands=tuple(
            replace(island, nodes=tuple(map(short, nodes)))
            for island, nodes in zip(report.islands, islands, strict=True)
            if nodes
        ),
        log=entries_inside(report.log, path),
        tensors=tuple(replace(t, value=short(t.value)) for t in report.tensors if inside(t.value)),
    )


def entries_inside(log: Iterable[LogEntry], path: str) -> tuple[LogEntry, ...]:
    """Return the entries of a log on the region at `path`, by the names there."""
    return tuple(replace(e, where=e.where.removeprefix(path)) for e in log if e.where.startswith(path))


def with_regions(
    report: QuantizationReport, regions: Sequence[tuple[str, QuantizationReport]]
) -> QuantizationReport:
    """Return a report with all that those of regions tell; names inside stand behind the region's path."""
    for path, inner in regions:
        report = replace(
            report,
            quantized=(*report.quantized, *(replace(n, name=path + n.name) for n in inner.quantized)),
            float_nodes=(*report.float_nodes, *(replace(n, name=path + n.name) for n in inner.float_nodes)),
            islands=(
                *report.islands,
                *(replace(i, nodes=tuple(path + name for name in i.nodes)) for i in inner.islands),
            ),
            rescales_left=report.rescales_left + inner.rescales_left,
            rescales_folded={
                name: count + inner.rescales_folded.get(name, 0)
                for name, count in report.rescales_folded.items()
            },
            weight_bytes_before=report.weight_bytes_before + inner.weight_bytes_before,
            weight_bytes_after=report.weight_bytes_after + inner.weight_bytes_after,
            log=(*report.log, *(replace(e, where=path + e.where) for e in inner.log)),
            tensors=(*report.tensors, *(replace(t, value=path + t.value) for t in inner.tensors)),
        )
    return report
