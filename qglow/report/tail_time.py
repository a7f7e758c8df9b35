"""The nodes that onnxruntime runs behind a program, for people, with the time that they take."""

from __future__ import annotations

from collections.abc import Mapping

from qglow.core.types import Array
from qglow.display.blocks import Paragraph, Section
from qglow.graph.graph import Graph
from qglow.report.bench import bench
from qglow.report.contenders import random_inputs
from qglow.toolchain.compilation import compile_graph
from qglow.toolchain.options import CompileOptions

RUNS = 9


def tail_section(graph: Graph, isa: str | None, program_us: float | None) -> list[Section]:
    """A section on the tail of a graph, none where it has none.

    program_us: time of the program in microseconds; with it the tail is measured, on one thread.
    Raises UsageError for a target that the host cannot run.
    """
    tail = graph.tail
    if tail is None:
        return []
    count = "one node" if len(tail.nodes) == 1 else f"{len(tail.nodes)} nodes"
    text = f"{count} in onnxruntime: {tail.kinds}"
    if program_us is not None:
        took = _microseconds(graph, isa)
        share = 100.0 * took / ((took + program_us) or 1.0)
        text += f"; {took:.1f} us on random inputs, {share:.1f} % of a call"
    return [Section("Behind the program", (Paragraph(text),))]


def _microseconds(graph: Graph, isa: str | None) -> float:
    tail = graph.tail
    assert tail is not None
    inputs: Mapping[str, Array] = random_inputs({value.name: value.type for value in graph.inputs})
    given = compile_graph(graph, CompileOptions(isa=isa, threads=1))(inputs)

    def run() -> None:
        tail.completed(inputs, given)

    return 1e3 * bench({"tail": run}, RUNS, 1).latencies["tail"].median_ms
