"""Networks that some default settings ruin, and measures of what their int8 forms lose."""

from __future__ import annotations

import numpy as np

from qglow.core.types import ElementType, TensorType, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.ops.control import Loop
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add, Mul
from qglow.graph.ops.functions import Sigmoid
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.shape import Transpose
from qglow.profiling.engine import InterpreterEngine
from qglow.profiling.profiler import profile
from qglow.profiling.samples import Sample
from qglow.recipe.schema import Recipe
from qglow.toolchain import CompileOptions
from qglow.tuning.quantizer import Quantizer
from qglow.tuning.self_check import float_runs, measure_outputs
from tests.unit.profiling.networks import MODEL


def comb(batch: int = 1) -> Graph:
    """The end of a detector: small offsets, a grid added to them, and the stride."""
    b = GraphBuilder("comb")
    x = b.input("x", float_type(batch, 400))
    eye = b.constant("eye", np.eye(400, dtype=np.float32))
    offsets = b.node(Gemm(), x, eye, b.constant("none", np.zeros(400, np.float32)), name="offsets")
    grid = np.where(np.arange(400) % 20 == 0, np.arange(400) / 5.0, 0.0).astype(np.float32)
    placed = b.node(Add(), offsets, b.constant("grid", grid[None]), name="placed")
    return b.finish(b.node(Mul(), placed, b.constant("stride", np.full((1, 1), 8, np.float32)), name="y"))


def offsets(count: int, seed: int = 3) -> list[Sample]:
    arrays = np.random.default_rng(seed).uniform(0.0, 1.0, (count, 400)).astype(np.float32)
    return [Sample(f"sample {i}", {"x": array}) for i, array in enumerate(arrays)]


def outliers(batch: int = 1) -> Graph:
    """Convolutions of which one channel is rarely very large, and carries the result."""
    random = np.random.default_rng(5)
    b = GraphBuilder("outliers")
    x = b.input("x", float_type(batch, 3, 6, 6))
    first = random.normal(size=(8, 3, 1, 1)).astype(np.float32) * np.float32(0.02)
    first[0] = 30.0
    bias = np.zeros(8, np.float32)
    bias[0] = -120.0
    stem = b.node(Conv(lo=0.0), x, b.constant("w", first), b.constant("b", bias), name="stem")
    total = b.node(Add(), stem, stem, name="total")
    return b.finish(
        b.node(Mul(), total, b.constant("half", np.full((1, 1, 1, 1), 0.5, np.float32)), name="y")
    )


def made(graph: Graph, kept: list[Sample]) -> Quantizer:
    seen = profile(graph, iter(kept), InterpreterEngine(lambda batch: graph), model=MODEL, batch_size=1)
    options = CompileOptions(threads=1)
    return Quantizer(graph, seen.check_matches(graph), seen.samples, options=options)


def level(quantizer: Quantizer, recipe: Recipe, given: list[Sample]) -> float:
    """SQNR of the compiled int8 model, in dB."""
    runs = float_runs(quantizer.graph, given, quantizer.options)
    found = measure_outputs(runs, quantizer(recipe).graph, quantizer.options).sqnr_db
    assert found is not None
    return found


def common_mode() -> Graph:
    """Differences of values that have a large part in common; weights are exact in int8."""
    b = GraphBuilder("common")
    x = b.input("x", float_type(1, 400))
    spread = np.eye(400, dtype=np.float32)
    spread[-1] = 127.0
    differences = np.eye(400, dtype=np.float32) - np.roll(np.eye(400, dtype=np.float32), 1, axis=0)
    none = np.zeros(400, np.float32)
    h = b.node(Gemm(), x, b.constant("w", spread), b.constant("b", none), name="h")
    return b.finish(b.node(Gemm(), h, b.constant("d", differences), b.constant("c", none), name="y"))


def read_twice() -> Graph:
    """A light node needs fine steps of a value; a product with most of the multiplications does not."""
    b = GraphBuilder("read twice")
    x = b.input("x", float_type(1, 400))
    few = np.zeros((400, 8), np.float32)
    few[:8] = 8.0 * np.eye(8)
    far = b.constant("far", np.full(8, 300.0, np.float32))
    small = b.node(Gemm(), x, b.constant("few", few), far, name="small")
    fine = b.node(Add(), small, b.constant("back", np.full((1, 8), -300.0, np.float32)), name="fine")
    drawn = np.random.default_rng(2).normal(size=(8, 4000)).astype(np.float32)
    none = b.constant("none", np.zeros(4000, np.float32))
    return b.finish(fine, b.node(Gemm(), small, b.constant("drawn", drawn), none, name="coarse"))


def hidden_common_mode(values: int = 40, common: float = 60.0) -> Graph:
    """The same after many values that rounding harms more themselves, and the output less."""
    b = GraphBuilder("hidden")
    x = b.input("x", float_type(1, 400))
    halves = np.where(np.arange(400) % 2, 0.0, 1.0).astype(np.float32)[None]
    y = x
    for number in range(values):
        y = b.node(Mul(), y, b.constant(f"m{number}", np.ones((1, 1), np.float32)), name=f"mul{number}")
    y = b.node(Add(), y, b.constant("up", common * np.ones((1, 400), np.float32)), name="large")
    y = b.node(Add(), y, b.constant("down", -common * np.ones((1, 400), np.float32)), name="small")
    return b.finish(b.node(Mul(), y, b.constant("halves", halves), name="y"))


def rare() -> Graph:
    """Heads of a detector that found nothing: the scores of all are below one step of int8."""
    b = GraphBuilder("rare")
    x = b.input("x", float_type(1, 400))
    random, heads = np.random.default_rng(1), []
    for name in map(str, range(6)):
        w = b.constant(f"{name}.w", (0.1 * random.normal(size=(400, 20))).astype(np.float32))
        logits = b.node(Gemm(), x, w, b.constant(f"{name}.b", np.full(20, -8.0, np.float32)))
        scores = b.node(Sigmoid(), logits, name=name)
        heads.append(b.node(Transpose((1, 0)), scores))
    return b.finish(*heads)


def recurrent() -> Graph:
    """A loop whose cell takes a small difference of large values, three times."""
    b = GraphBuilder("cell")
    b.input("number", TensorType(ElementType.INT64, ()))
    state = b.input("s", float_type(1, 40))
    eye, none = np.eye(40, dtype=np.float32), np.zeros(40, np.float32)
    y = b.node(Gemm(), state, b.constant("eye", eye), b.constant("none", none), name="p")
    y = b.node(Add(), y, b.constant("up", np.full((1, 40), 30, np.float32)), name="large")
    y = b.node(Add(), y, b.constant("down", np.full((1, 40), -30, np.float32)), name="small")
    y = b.node(Gemm(), y, b.constant("decay", 0.9 * eye), b.constant("nought", none), name="q")
    cell, b = b.finish(y), GraphBuilder("recurrent")
    x = b.input("x", float_type(1, 40))
    return b.finish(b.node(Loop(rounds=3, carried=1, body=cell), None, None, x, name="y"))
