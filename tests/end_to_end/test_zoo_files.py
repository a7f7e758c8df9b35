"""Text and artefacts of real models: read back, they are the same program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qglow.core.types import Array
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter
from qglow.graph.text import constant_data, parse_graph, print_graph
from qglow.instructions.plan import plan_memory
from qglow.instructions.program import Program
from qglow.instructions.text import parse_program, print_program
from qglow.kernels.selection.select import select_kernels
from qglow.targets.x86.isas import AMX_EMULATED
from qglow.toolchain import CompileOptions, compile_graph, lower_graph
from qglow.toolchain.artefacts import load_executable, write_artefact
from tests.end_to_end.zoo_flow import MODELS, NAMES, RUNNABLE, float_graph, inputs, quantized


def graphs(name: str) -> tuple[Graph, Graph]:
    """Float and int8."""
    batch = MODELS[name].batches[0]
    return float_graph(name, batch), quantized(name, batch).graph


def constants(program: Program) -> dict[str, Array]:
    return {buffer.name: np.asarray(buffer.data) for buffer in program.constants}


@pytest.mark.parametrize("name", NAMES)
def test_graph_text_restores_the_graph(name: str) -> None:
    for graph in graphs(name):
        text = print_graph(graph)
        restored = parse_graph(text, constant_data(graph))
        assert print_graph(restored) == text
        fed = inputs(name, MODELS[name].batches[0])
        wanted = Interpreter(graph).run(fed)
        for output, array in Interpreter(restored).run(fed).items():
            assert np.array_equal(array, wanted[output])


@pytest.mark.parametrize("name", NAMES)
def test_program_text_restores_the_program(name: str) -> None:
    """Before kernels are selected, and after selection and planning."""
    for graph in graphs(name):
        program = lower_graph(graph)
        text = print_program(program)
        assert print_program(parse_program(text, constants(program))) == text
        select_kernels(program, AMX_EMULATED)
        plan_memory(program)
        text = print_program(program)
        assert print_program(parse_program(text, constants(program))) == text


@pytest.mark.parametrize("name", NAMES)
def test_artefact_runs_as_the_program_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bytes each time; the same bits from its own code and compiled anew for another ISA."""
    monkeypatch.setenv("QGLOW_CACHE", str(tmp_path / "cache"))
    graph, fed = graphs(name)[1], inputs(name, MODELS[name].batches[0])
    first, second = tmp_path / "first.qglow", tmp_path / "second.qglow"
    for path in (first, second):
        write_artefact(path, lower_graph(graph))
    assert first.read_bytes() == second.read_bytes()
    wanted = compile_graph(graph)(fed)
    for isa, trust in ((None, True), (RUNNABLE[0], False)):
        loaded = load_executable(first, CompileOptions(isa=isa), trust)(fed)
        assert loaded.keys() == wanted.keys()
        assert all(np.array_equal(array, wanted[output]) for output, array in loaded.items())
