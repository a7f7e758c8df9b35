"""Kernels by the nodes that they execute."""

from __future__ import annotations

from dataclasses import replace

from qglow.report.node_kernels import kernels_of_code, kernels_of_graph, node_kernels
from qglow.report.report import document_of
from qglow.targets.registry import find_or_select
from qglow.toolchain.artefacts import make_artefact
from qglow.toolchain.compilation import lower_graph, selected_program
from tests.unit.report.large_network import large_report, quantized


def test_every_convolution_has_the_kernel_of_its_instruction() -> None:
    graph = quantized(2)[0].graph
    target = find_or_select().description.name
    found = node_kernels(selected_program(graph), target)
    convolutions = [node.name for node in graph.nodes if node.operator.name == "Conv"]
    assert all("convolution" in found[name] and found[name].endswith(f" ({target})") for name in convolutions)
    assert kernels_of_graph(graph) == found


def test_parts_count_for_the_node_that_they_are_of() -> None:
    graph = quantized(2)[0].graph
    program = selected_program(graph)
    first = next(i for i in program.code if i.kernel)
    first.origin = ("whole.part.3",)
    found = node_kernels(program, "t")
    assert {name: found[name] for name in ("whole", "whole.part", "whole.part.3")} == dict.fromkeys(
        ("whole", "whole.part", "whole.part.3"), f"{first.kernel} (t)"
    )


def test_kernels_of_code_are_those_of_the_target_that_it_is_for() -> None:
    graph = quantized(2)[0].graph
    lowered = lower_graph(graph)
    _, variants = make_artefact(lowered)
    assert kernels_of_code(lowered, variants) == kernels_of_graph(graph)
    assert kernels_of_code(lowered, []) == {}
    named = kernels_of_code(lowered, [replace(variants[0], target="other")])
    assert all(text.endswith("(other)") for text in named.values())


def test_panels_name_the_kernel() -> None:
    graph = quantized(2)[0].graph
    document = document_of(large_report(2), graph, {"stem.Conv": "a kernel (t)"})
    facts = {panel.name: dict(panel.facts) for panel in document.nodes}
    assert facts["stem.Conv"]["kernel"] == "a kernel (t)"
    assert "kernel" not in facts["layer0/mix.Conv"]
