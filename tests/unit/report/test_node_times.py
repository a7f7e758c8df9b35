"""Times of nodes: what runs together is one row, onnxruntime's names are found again, losers are named."""

from __future__ import annotations

import numpy as np

from qglow.display.blocks import Grid, Paragraph
from qglow.exporter import export_qdq
from qglow.report.node_times import NodeTime, NodeTimes, measure_nodes, node_section
from qglow.targets.capabilities import timed
from qglow.targets.registry import find_target
from qglow.toolchain import selected_program
from tests.runtimes import PLAIN
from tests.unit.report.digits import example

TIMES = NodeTimes(
    (NodeTime(("a",), 5.0, 20.0), NodeTime(("b", "c", "d", "e"), 30.0, 9.0), NodeTime(("f",), 40.0, 30.0)),
    elsewhere=7.0,
)


def test_slower_nodes_are_named_the_worst_first() -> None:
    assert [row.nodes[0] for row in TIMES.losing] == ["b", "f"]
    within_what_onnxruntime_resolves = NodeTime(("a",), 4.9, 4.0)
    assert not within_what_onnxruntime_resolves.loses and not NodeTime(("a",), 5.0, None).loses
    *_, last = node_section(TIMES).blocks
    assert last == Paragraph("slower than onnxruntime's node: b + c + d and 1 more (21.0 us), f (10.0 us)")


def test_table_has_the_most_expensive_first() -> None:
    table, total, _ = node_section(TIMES).blocks
    assert isinstance(table, Grid)
    assert table.rows[0] == ("f", "40.0", "30", "0.75") and table.rows[2] == ("a", "5.0", "20", "4.00")
    assert isinstance(total, Paragraph) and "75.0 us, in onnxruntime 66.0, 7.0 of them" in total.text


def test_nodes_of_the_example_are_found_in_both() -> None:
    graph = example().quantized.graph
    inputs = {"input": np.zeros((1, 1, 8, 8), np.float32)}
    program, file = selected_program(graph, PLAIN), export_qdq(graph, None).SerializeToString()
    times = measure_nodes(program, timed(find_target(PLAIN)), file, inputs)
    found = {name: row for row in times.rows for name in row.nodes}
    convolutions = [node.name for node in graph.nodes if type(node.operator).__name__ == "Conv"]
    assert len(convolutions) >= 8
    for name in convolutions:
        assert found[name].theirs is not None and found[name].ours > 0.0
