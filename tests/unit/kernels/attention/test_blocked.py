"""Working memory of attention: one part for each thread, not for each stack of keys."""

from __future__ import annotations

import numpy as np

from qglow.core.types import float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.ops.linear import MatMul
from qglow.graph.ops.shape import Transpose
from qglow.graph.ops.softmax import Softmax
from qglow.instructions.program import Program
from qglow.toolchain import CompileOptions, compile_graph, selected_program

HEADS, TOKENS, DEPTH = 6, 96, 32
CALLS = 20


def attention(batch: int) -> Graph:
    b = GraphBuilder("attention")
    queries, keys, values = (b.input(n, float_type(batch, HEADS, TOKENS, DEPTH)) for n in "qkv")
    scores = b.node(MatMul(), queries, b.node(Transpose(perm=(0, 1, 3, 2)), keys))
    return b.finish(b.node(MatMul(), b.node(Softmax(axis=-1), scores), values, name="y"))


def working_bytes(program: Program) -> int:
    found = next(i for i in program.code if i.operation.opcode == "attention")
    return found.operand("scratch").type.size


def test_texts_of_a_batch_need_no_more_working_memory() -> None:
    sizes = {batch: working_bytes(selected_program(attention(batch))) for batch in (1, 4, HEADS)}
    assert len(set(sizes.values())) == 1


def test_threads_keep_apart_what_they_work_with() -> None:
    graph = attention(3)
    random = np.random.default_rng(1)
    inputs = {n: random.normal(size=(3, HEADS, TOKENS, DEPTH)).astype(np.float32) for n in "qkv"}
    found = {}
    for threads in (1, 2, 3):
        program = compile_graph(graph, CompileOptions(threads=threads))
        results = {program(inputs)["y"].tobytes() for _ in range(CALLS)}
        assert len(results) == 1, threads
        found[threads] = results.pop()
    assert len(set(found.values())) == 1
