"""Share of the time that goes to nodes in onnxruntime."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from onnx import helper

from qglow.host.clock import host_clock, in_host
from qglow.importer import import_model
from qglow.report.hosted_time import HostedTime, hosted_nodes, hosted_time
from tests.unit.importer.tiny import save, tiny_model


def wait(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_only_what_is_inside_is_counted_while_a_clock_runs() -> None:
    with in_host():
        wait(0.01)
    with host_clock() as clock, host_clock() as other:
        wait(0.01)
        assert clock.nanoseconds == 0
        with pytest.raises(ValueError), in_host():
            wait(0.01)
            raise ValueError
        assert clock.nanoseconds == other.nanoseconds >= 10_000_000
    before = clock.nanoseconds
    with in_host():
        wait(0.01)
    assert clock.nanoseconds == before


def test_the_share_is_that_of_the_calls(tmp_path: Path) -> None:
    nodes = [helper.make_node("Inverse", ["x"], ["y"], domain="com.microsoft")]
    model = tiny_model(nodes, {"x": (1, 2, 2)}, ["y"])
    model.opset_import.add(domain="com.microsoft", version=1)
    graph = import_model(save(model, tmp_path)).graph

    def run() -> None:
        wait(0.004)
        with in_host():
            wait(0.004)

    found = hosted_time(graph, run)
    assert hosted_nodes(graph) == 1 and found is not None and 0.2 < found.share < 0.8


def test_a_model_without_such_nodes_is_not_measured(tmp_path: Path) -> None:
    graph = import_model(
        save(tiny_model([helper.make_node("Relu", ["x"], ["y"])], {"x": (1, 6)}, ["y"]), tmp_path)
    ).graph
    assert hosted_time(graph, lambda: pytest.fail("it was run")) is None


def test_it_is_told_in_words() -> None:
    assert str(HostedTime(1, 0.004)) == "one node runs in onnxruntime, 0.40 % of the time"
    assert str(HostedTime(3, 0.25)) == "3 nodes run in onnxruntime, 25.00 % of the time"
