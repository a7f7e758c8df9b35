"""Passes by name, stopped after a number of rewrites, and the first rewrite that changes results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from qglow.bisection import passes
from qglow.bisection.cut_graph import values_of
from qglow.bisection.minimal import AFTER, INPUTS, MODEL, write_rewrite
from qglow.bisection.passes import default_steps, parse_steps, run_steps
from qglow.bisection.rewrites import first_rewrite, outputs_of
from qglow.bisection.texts import parse_ir, print_ir, read_arrays, read_ir, write_ir
from qglow.core.errors import InputFileError, UsageError
from qglow.core.passes import PassLog
from qglow.core.types import TensorType, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Node
from qglow.graph.ops.elementwise import Add, Clip, Relu
from qglow.graph.ops.functions import Neg
from qglow.graph.rewriting import Outcome, RewritePass, change
from qglow.instructions.program import Program


@dataclass(frozen=True)
class WrongThird(RewritePass):
    """Makes every Relu a Clip, which is the same, but of r2 it makes a Neg."""

    name: ClassVar[str] = "wrong-third"
    wrong: ClassVar[str] = "r2"
    """Name of the value whose node becomes a Neg; "*" for all."""

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        if not isinstance(node.operator, Relu):
            return None
        change(node, Neg() if self.wrong in ("*", node.output.name) else Clip(lo=0.0))
        return "changed"


@pytest.fixture(autouse=True)
def wrong_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "ALL_PASSES", (*passes.ALL_PASSES, WrongThird))


def chain(length: int = 6) -> Graph:
    """x + 1 through Relus r0, r1, ..., with a large constant in between."""
    builder = GraphBuilder("chain")
    value = builder.input("x", float_type(2, 20))
    big = builder.constant("big", np.arange(40, dtype=np.float32).reshape(2, 20))
    value = builder.node(Add(), value, big, name="add")
    for number in range(length):
        value = builder.node(Relu(), value, name=f"r{number}")
    return builder.finish(value)


INPUTS_OF_CHAIN = {"x": np.full((2, 20), 1.0, np.float32)}


def test_pipeline_over_both_irs_is_parsed_and_printed() -> None:
    text = "fold-constants,fuse-activation,peephole,stack{max-length=2}"
    assert str(parse_steps(text)) == text


def test_graph_passes_come_first() -> None:
    with pytest.raises(UsageError, match="passes over the graph come before"):
        parse_steps("peephole,fold-constants")


def test_unknown_pass_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="fold-constants"):
        parse_steps("fold-constant")


def test_steps_stop_after_a_number_of_rewrites() -> None:
    graph, log = chain(), PassLog(budget=2)
    left = run_steps(graph, parse_steps("wrong-third"), log)
    assert isinstance(left, Graph) and log.rewrites == 2
    assert [type(node.operator) for node in left.nodes[1:5]] == [Clip, Clip, Relu, Relu]


def test_steps_over_programs_lower_the_graph_and_tell_of_each() -> None:
    told: list[str] = []
    steps = parse_steps("fold-constants,peephole,dead-stores")
    left = run_steps(chain(), steps, PassLog(), lambda name, ir: told.append(name))
    assert isinstance(left, Program)
    assert told == ["fold-constants", "lower", "peephole", "dead-stores"]


def test_graph_passes_on_a_program_are_refused() -> None:
    program = run_steps(chain(), parse_steps("peephole"), PassLog())
    with pytest.raises(UsageError, match="works on graphs"):
        run_steps(program, parse_steps("fold-constants"), PassLog())


def test_first_wrong_rewrite_is_found() -> None:
    graph = chain()
    before = print_ir(graph)
    found = first_rewrite(graph, parse_steps("fold-constants,wrong-third"), INPUTS_OF_CHAIN, 1e-6)
    assert found is not None
    assert (found.number, found.entry.pass_name, found.entry.where) == (3, "wrong-third", "Relu_2")
    assert print_ir(graph) == before


def test_right_passes_make_no_difference() -> None:
    graph = chain()
    assert first_rewrite(graph, default_steps(graph), INPUTS_OF_CHAIN, 1e-6) is None


def test_minimal_pair_of_a_rewrite_is_one_node(tmp_path: Path) -> None:
    found = first_rewrite(chain(), parse_steps("wrong-third"), INPUTS_OF_CHAIN, 1e-6)
    assert found is not None
    write_rewrite(tmp_path, found, INPUTS_OF_CHAIN, 1e-6)
    inputs = read_arrays(tmp_path / INPUTS)
    before, after = read_ir(tmp_path / MODEL), read_ir(tmp_path / AFTER)
    assert isinstance(before, Graph) and isinstance(after, Graph)
    assert [type(node.operator) for node in before.nodes] == [Relu]
    assert [type(node.operator) for node in after.nodes] == [Neg]
    (name,) = outputs_of(before, inputs)
    assert np.array_equal(-outputs_of(before, inputs)[name], outputs_of(after, inputs)[name])


@pytest.mark.parametrize("lowered", [False, True])
def test_texts_are_written_and_read_with_their_constants(tmp_path: Path, lowered: bool) -> None:
    graph = chain()
    ir = run_steps(graph, parse_steps("peephole"), PassLog()) if lowered else graph
    write_ir(ir, tmp_path / "m.txt")
    again = read_ir(tmp_path / "m.txt")
    assert print_ir(again) == print_ir(ir)
    (expected,) = outputs_of(ir, INPUTS_OF_CHAIN).values()
    (actual,) = outputs_of(again, INPUTS_OF_CHAIN).values()
    assert np.array_equal(actual, expected)


def test_text_that_does_not_parse_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "m.txt"
    path.write_text("graph g (%x: float<1>) -> (%y) {\n  nonsense\n}\n")
    with pytest.raises(InputFileError, match=r"m\.txt: line 2"):
        read_ir(path)


def test_values_come_inputs_first() -> None:
    assert next(iter(values_of(chain(), INPUTS_OF_CHAIN))) == "x"


def test_text_of_a_graph_is_verified() -> None:
    kind: TensorType = float_type(1)
    assert str(kind) in print_ir(parse_ir("graph g (%x: float<1>) -> (%x) {\n}\n", {}))
