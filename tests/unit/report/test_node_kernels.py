"""Kernels by the nodes that they execute."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qglow.report.node_kernels import NodeCode, kernels_of_code, kernels_of_graph, node_kernels
from qglow.report.report import document_of
from qglow.targets.registry import find_or_select
from qglow.toolchain.artefacts import make_artefact
from qglow.toolchain.compilation import lower_graph, selected_program
from tests.unit.report.large_network import large_report, quantized


def test_every_convolution_has_the_kernel_of_its_instruction() -> None:
    graph = quantized(2)[0].graph
    target = find_or_select()
    name = target.description.name
    found = node_kernels(selected_program(graph), name, target.machine)
    for node in graph.nodes:
        if node.operator.name == "Conv":
            facts = dict(found[node.name].facts())
            assert "convolution" in facts["kernel"] and facts["kernel"].endswith(f" ({name})")
            assert facts["time"].endswith("% of a run, estimated")
    assert kernels_of_graph(graph) == found


def test_shares_of_the_time_add_up() -> None:
    graph = quantized(2)[0].graph
    found = kernels_of_graph(graph)
    whole = [name for name in found if "." not in name or name in {node.name for node in graph.nodes}]
    shares = {name: found[name].share for name in whole}
    assert all(share is not None and 0.0 <= share <= 1.0 for share in shares.values())
    nodes = {node.name for node in graph.nodes}
    assert 0.5 < sum(share or 0.0 for name, share in shares.items() if name in nodes) <= 1.0 + 1e-9


def test_nodes_of_one_kernel_have_equal_parts_of_its_time() -> None:
    graph = quantized(2)[0].graph
    target, program = find_or_select(), selected_program(graph)
    first = next(i for i in program.code if i.kernel)
    first.origin = ("alone",)
    [alone] = [node_kernels(program, "t", target.machine)["alone"].share]
    first.origin = ("a", "b")
    found = node_kernels(program, "t", target.machine)
    assert alone is not None and found["a"].share == found["b"].share == pytest.approx(alone / 2.0)


def test_parts_count_for_the_node_that_they_are_of() -> None:
    graph = quantized(2)[0].graph
    program = selected_program(graph)
    first = next(i for i in program.code if i.kernel)
    first.origin = ("whole.part.3",)
    found = node_kernels(program, "t", None)
    assert {name: found[name] for name in ("whole", "whole.part", "whole.part.3")} == dict.fromkeys(
        ("whole", "whole.part", "whole.part.3"), NodeCode((first.kernel,), "t")
    )


def test_kernels_of_code_are_those_of_the_target_that_it_is_for() -> None:
    graph = quantized(2)[0].graph
    lowered = lower_graph(graph)
    _, variants = make_artefact(lowered)
    assert kernels_of_code(lowered, variants) == kernels_of_graph(graph)
    assert kernels_of_code(lowered, []) == {}
    named = kernels_of_code(lowered, [replace(variants[0], target="other")])
    assert all(code.target == "other" and code.share is None for code in named.values())


def test_panels_name_the_kernel() -> None:
    graph = quantized(2)[0].graph
    document = document_of(large_report(2), graph, {"stem.Conv": NodeCode(("a kernel",), "t", 0.25)})
    facts = {panel.name: dict(panel.facts) for panel in document.nodes}
    assert facts["stem.Conv"]["kernel"] == "a kernel (t)"
    assert facts["stem.Conv"]["time"] == "25.00 % of a run, estimated"
    assert "kernel" not in facts["layer0/mix.Conv"]
