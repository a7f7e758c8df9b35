"""Rows of integers by their scales become one instruction."""

from __future__ import annotations

import numpy as np

from qglow.core.passes import PassLog
from qglow.core.types import float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.ops.linear import Gemm
from qglow.instructions.program import Program
from qglow.lowering.driver import lower
from qglow.quantization.dynamic import scale_rows


def product(bias: bool = True) -> Graph:
    """A product of scaled rows."""
    b = GraphBuilder("product")
    x = b.input("x", float_type(6, 40))
    w = b.constant("w", np.random.default_rng(1).normal(size=(40, 24)).astype(np.float32))
    terms = b.constant("terms", np.arange(24, dtype=np.float32)) if bias else None
    graph = b.finish(b.node(Gemm(), x, w, terms))
    scale_rows(graph, dict.fromkeys(graph.nodes), PassLog())
    return graph


def opcodes(program: Program) -> list[str]:
    return [i.operation.opcode for i in program.code if i.operation.touches_memory]


def test_scales_and_integers_of_rows_are_one_instruction() -> None:
    graph = product()
    program = lower(graph)
    assert "quantizerows" in opcodes(program)
    assert not {"rowscales", "elementdiv", "clip", "quantize"} & set(opcodes(program))
    found = next(i for i in program.code if i.operation.opcode == "quantizerows")
    assert len(found.origin) == 4


def test_single_operators_stay_single_where_that_is_wanted() -> None:
    assert {"rowscales", "elementdiv", "clip", "quantize"} <= set(opcodes(lower(product(), whole=False)))


def test_quotients_that_others_read_stay() -> None:
    graph = product()
    divided = next(n for n in graph.nodes if n.operator.name == "Div").output
    graph.outputs.append(divided)
    assert "quantizerows" not in opcodes(lower(graph))


def test_a_scaled_product_is_one_instruction() -> None:
    program = lower(product())
    assert opcodes(program) == ["quantizerows", "fullyconnected"]
    found = next(i for i in program.code if i.operation.opcode == "fullyconnected")
    assert found.optional("row_scales") is not None and found.optional("addend") is not None
    assert len(found.origin) == 4


def test_a_product_without_a_bias_has_no_addend() -> None:
    program = lower(product(bias=False))
    found = next(i for i in program.code if i.operation.opcode == "fullyconnected")
    assert found.optional("row_scales") is not None and found.optional("addend") is None


def test_sums_that_others_read_are_scaled_apart() -> None:
    graph = product()
    graph.outputs.append(next(n for n in graph.nodes if n.operator == Gemm()).output)
    found = next(i for i in lower(graph).code if i.operation.opcode == "fullyconnected")
    assert found.optional("row_scales") is None
