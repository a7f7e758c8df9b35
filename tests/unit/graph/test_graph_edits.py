"""Graphs as data: use lists, edits, copies, order, names, pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from qglow.core.errors import InternalError
from qglow.core.passes import PassLog, Refused
from qglow.core.types import float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.dot import to_dot
from qglow.graph.folding import evaluate_constant_node
from qglow.graph.graph import Graph, Node, Value, names
from qglow.graph.operator import OperatorTypeError, register
from qglow.graph.ops.elementwise import Add, Clip, Relu
from qglow.graph.ops.functions import Tanh
from qglow.graph.ops.linear import Gemm, MatMul
from qglow.graph.ops.movement import Pad
from qglow.graph.ops.shape import Shape, Transpose
from qglow.graph.rewriting import Outcome, RewritePass
from qglow.graph.text import parse_graph, print_graph
from qglow.graph.verifier import verify_graph

TEXT = """graph g (%x: float<2>) -> (%y) {
  %a: float<2> = Relu @"n0" (%x)
  %b: float<2> = Tanh @"n1" (%a)
  %y: float<2> = Add @"n2" (%a, %b)
}
"""


def test_use_lists_follow_the_operands() -> None:
    graph = parse_graph(TEXT)
    a, add = graph.value("a"), graph.node("n2")
    assert [(node.name, index) for node, index in a.uses] == [("n1", 0), ("n2", 0)]
    add.inputs = (a, a)
    assert [node.name for node in a.users()] == ["n1", "n2"] and len(a.uses) == 3
    assert not graph.value("b").uses


def test_a_node_that_is_read_cannot_be_removed() -> None:
    graph = parse_graph(TEXT)
    with pytest.raises(ValueError, match="still has users"):
        graph.remove(graph.node("n1"))
    with pytest.raises(ValueError, match="still has users"):
        graph.remove(graph.node("n2"))


def test_replacing_a_value_reaches_users_and_outputs() -> None:
    graph = parse_graph(TEXT)
    graph.replace_value(graph.value("b"), graph.value("x"))
    graph.replace_value(graph.value("y"), graph.value("a"))
    graph.remove(graph.node("n2"))
    graph.remove(graph.node("n1"))
    verify_graph(graph, "test")
    assert names(graph.outputs) == ["a"]


def test_sorting_restores_the_order_and_finds_cycles() -> None:
    graph = parse_graph(TEXT)
    graph.nodes = reversed(graph.nodes)
    graph.sort()
    assert print_graph(graph) == TEXT
    graph.node("n0").inputs = (graph.value("y"),)
    with pytest.raises(ValueError, match="cycle through Relu 'n0'"):
        graph.sort()


def test_a_copy_shares_data_and_nothing_else() -> None:
    graph = parse_graph(
        TEXT.replace('Add @"n2" (%a, %b)', 'Add @"n2" (%a, %c)').replace(
            "  %a:", "  %c: float<2> = constant {1.0, 2.0}\n  %a:"
        )
    )
    text, twin = print_graph(graph), graph.copy()
    assert print_graph(twin) == text
    verify_graph(twin, "copy")
    assert twin.value("c").data is graph.value("c").data
    twin.node("n0").operator = Tanh()
    twin.value("a").name = "z"
    assert print_graph(graph) == text


def test_names_are_made_unique_among_values_and_nodes() -> None:
    graph = parse_graph(TEXT)
    assert [graph.unique_name(name) for name in ("new", "a", "n1")] == ["new", "a__1", "n1__1"]


def test_lookups_by_name_and_operand() -> None:
    graph = parse_graph(TEXT)
    assert graph.node("n2").operand("rhs") is graph.value("b")
    for lookup in (graph.value, graph.node, graph.node("n2").operand):
        with pytest.raises(KeyError):
            lookup("nothing")


def test_the_builder_infers_types_and_names_what_has_none() -> None:
    builder = GraphBuilder("g")
    x = builder.input("x", float_type(2, 3))
    y = builder.node(Relu(), x)
    z = builder.node(Relu(), y, name="x")
    graph = builder.finish(z)
    verify_graph(graph, "built")
    assert [v.name for v in (y, z)] == ["relu_0", "x__1"] and names_of_nodes(graph) == ["Relu_0", "Relu_1"]
    with pytest.raises(OperatorTypeError, match="Add 'Add_0': shapes .* do not broadcast"):
        builder.node(Add(), x, builder.constant("c", np.ones(2, np.float32)))


def names_of_nodes(graph: Graph) -> list[str]:
    return [node.name for node in graph.nodes]


def test_only_known_results_are_evaluated() -> None:
    graph = parse_graph(TEXT)
    assert all(evaluate_constant_node(node) is None for node in graph.nodes)
    shape = Node("shape", Shape(), [graph.value("x")], [Value("s", Shape().infer([float_type(2)])[0])])
    results = evaluate_constant_node(shape)
    assert results is not None and results[0].tolist() == [2]
    one = Value("one", float_type(1), np.ones(1, np.float32))
    huge = Node("pad", Pad(pads=(2**28, 0)), [one], [Value("p", float_type(2**28 + 1))])
    assert evaluate_constant_node(huge) is None


def test_large_weights_are_evaluated_where_they_do_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qglow.graph.folding.LARGEST_RESULT", 20)
    weights = Value("w", float_type(2, 3), np.arange(6, dtype=np.float32).reshape(2, 3))
    turned = Node("turn", Transpose(perm=(1, 0)), [weights], [Value("t", float_type(3, 2))])
    padded = Node("pad", Pad(pads=(0, 0, 0, 1)), [weights], [Value("p", float_type(2, 4))])
    results = evaluate_constant_node(turned)
    assert results is not None and results[0].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert evaluate_constant_node(padded) is None


def test_a_picture_has_every_node_and_computed_edge() -> None:
    text = to_dot(parse_graph(TEXT))
    assert text.startswith('digraph "g" {') and text.count(" -> ") == 5
    assert '"node n1" [label="Tanh\\nn1"' in text


@dataclass(frozen=True)
class TurnRelus(RewritePass):
    """Relu to Tanh, but for one node."""

    name: ClassVar[str] = "turn-relus"
    keep: str = ""

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        if not isinstance(node.operator, Relu):
            return None
        if node.name == self.keep:
            return Refused("kept")
        node.operator = Tanh()
        return "turned"


@dataclass(frozen=True)
class Forever(RewritePass):
    """Never content."""

    name: ClassVar[str] = "forever"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        return "again"


def relus(count: int) -> Graph:
    builder = GraphBuilder("g")
    value = builder.input("x", float_type(1))
    for _ in range(count):
        value = builder.node(Relu(), value)
    return builder.finish(value)


def test_rewriting_logs_what_it_did_and_once_why_not() -> None:
    graph, log = relus(3), PassLog(pass_name="turn-relus")
    TurnRelus(keep="Relu_1").run(graph, log)
    assert [(e.where, e.what, e.applied) for e in log.entries] == [
        ("Relu_0", "turned", True),
        ("Relu_2", "turned", True),
        ("Relu_1", "kept", False),
    ]
    assert log.reasons("Relu_1") == ["turn-relus: kept"]


def test_rewriting_stops_at_the_budget() -> None:
    graph, log = relus(3), PassLog(budget=2)
    TurnRelus().run(graph, log)
    assert [node.operator.name for node in graph.nodes] == ["Tanh", "Tanh", "Relu"]


def test_rewriting_that_does_not_end_is_a_defect() -> None:
    with pytest.raises(InternalError, match="forever does not come to an end"):
        Forever().run(relus(1), PassLog())


def test_an_operator_is_declared_once() -> None:
    with pytest.raises(ValueError, match="Clip is declared twice"):
        register(Clip)


def test_constants_of_a_model_are_summed_in_order() -> None:
    """A profile is found again by the bits of constants, and numpy's order depends on threads."""
    random = np.random.default_rng(1)
    a, b = random.normal(size=(9, 300)).astype(np.float32), random.normal(size=(300, 4)).astype(np.float32)
    total = np.zeros((9, 4))
    for k in range(300):
        total += np.outer(a[:, k].astype(np.float64), b[k].astype(np.float64))
    for operator in (Gemm(), MatMul()):
        builder = GraphBuilder("constants")
        operands = [builder.constant("a", a), builder.constant("b", b)]
        node = Node("n", operator, operands, [Value("y", float_type(9, 4))])
        results = evaluate_constant_node(node)
        assert results is not None and np.array_equal(results[0], total.astype(np.float32))
