"""The compiled profiling engine gives the same statistics whatever the batches and the ISA."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import Array, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Relu
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.movement import Slice
from qglow.graph.ops.pool import GlobalAveragePool
from qglow.graph.ops.shape import Reshape
from qglow.profiling.engine import InterpreterEngine
from qglow.profiling.histogram import ValueProfile
from qglow.toolchain import CompiledEngine, CompileOptions, compile_graph
from tests.runtimes import NATIVE, PLAIN

FMA_ISAS = [isa.name for isa in NATIVE if isa.has_fma]
SAMPLES = np.random.default_rng(5).normal(size=(10, 3, 9, 9)).astype(np.float32)


def network(batch: int) -> Graph:
    random = np.random.default_rng(1)
    builder = GraphBuilder("network")
    x = builder.input("x", float_type(batch, 3, 9, 9))
    w = builder.constant("w", random.normal(size=(8, 3, 3, 3)).astype(np.float32))
    y = builder.node(Relu(), builder.node(Conv(pads=(1, 1, 1, 1)), x, w, None))
    flat = builder.node(Reshape(shape=(batch, 8)), builder.node(GlobalAveragePool(), y))
    u = builder.constant("u", random.normal(size=(8, 5)).astype(np.float32))
    return builder.finish(builder.node(Gemm(), flat, u, None, name="logits"))


def profiled(order: Array, batch: int, isa: str | None = None) -> dict[str, ValueProfile]:
    engine = CompiledEngine(network, CompileOptions(isa=isa))
    for start in range(0, len(order), batch):
        engine.run({"x": SAMPLES[order[start : start + batch]]})
    return engine.collect()


def same(left: dict[str, ValueProfile], right: dict[str, ValueProfile]) -> bool:
    if left.keys() != right.keys():
        return False
    for name, one in left.items():
        other = right[name]
        exact = np.array_equal(one.counts, other.counts) and (one.low, one.high) == (other.low, other.high)
        if not exact or (one.channels is None) != (other.channels is None):
            return False
        if one.channels is not None and other.channels is not None:
            if one.channels.totals() != other.channels.totals():
                return False
            if not np.array_equal(one.channels.low, other.channels.low):
                return False
    return True


def test_a_value_without_channels_is_profiled_as_the_interpreter_does() -> None:
    def empty(batch: int) -> Graph:
        builder = GraphBuilder("empty")
        x = builder.input("x", float_type(batch, 3, 4))
        return builder.finish(builder.node(Slice((0, 0, 0), (batch, 0, 4), (1, 1, 1)), x, name="none"))

    engines = (CompiledEngine(empty, CompileOptions()), InterpreterEngine(empty))
    for engine in engines:
        engine.run({"x": SAMPLES[:2, :, :4, 0]})
    compiled, interpreted = (engine.collect() for engine in engines)
    assert "none" in compiled and same(compiled, interpreted)


@pytest.mark.parametrize("batch", [1, 4, 7, 10])
def test_batch_size_and_order_leave_no_trace(batch: int) -> None:
    straight = profiled(np.arange(10), 1)
    shuffled = np.random.default_rng(2).permutation(10)
    assert same(straight, profiled(shuffled, batch))


@pytest.mark.skipif(len(FMA_ISAS) < 2, reason="the host has no two ISAs with fused multiply-add")
def test_isa_leaves_no_trace() -> None:
    first, second = FMA_ISAS[:2]
    assert same(profiled(np.arange(10), 4, first), profiled(np.arange(10), 4, second))


def test_reference_keeps_state_from_call_to_call() -> None:
    """The state of interpreted programs is live, and the same as that of compiled ones."""

    def graph(batch: int) -> Graph:
        builder = GraphBuilder("clamped")
        return builder.finish(builder.node(Relu(), builder.input("x", float_type(batch, 3, 9, 9)), name="y"))

    found = []
    for isa in ("reference", PLAIN):
        engine = CompiledEngine(graph, CompileOptions(isa=isa))
        for start in (0, 4):
            engine.run({"x": SAMPLES[start : start + 4]})
        found.append(engine.collect())
        engine.clear()
        engine.run({"x": SAMPLES[8:9]})
        found.append(engine.collect())
    assert same(found[0], found[2]) and same(found[1], found[3]) and not same(found[0], found[1])


def test_compiled_and_interpreted_statistics_agree() -> None:
    interpreted = InterpreterEngine(network)
    interpreted.run({"x": SAMPLES})
    expected, actual = interpreted.collect(), profiled(np.arange(10), 10)
    assert expected.keys() == actual.keys()
    for name, wanted in expected.items():
        assert actual[name].total == wanted.total
        assert actual[name].low == pytest.approx(wanted.low, rel=1e-5, abs=1e-6)
        assert actual[name].high == pytest.approx(wanted.high, rel=1e-5, abs=1e-6)


def test_collecting_twice_counts_once() -> None:
    engine = CompiledEngine(network)
    engine.run({"x": SAMPLES[:2]})
    once = {name: p.total for name, p in engine.collect().items()}
    assert {name: p.total for name, p in engine.collect().items()} == once


def test_threads_leave_no_trace() -> None:
    random = np.random.default_rng(3)
    image = random.normal(size=(2, 16, 48, 48)).astype(np.float32)
    filters = random.normal(size=(32, 16, 3, 3)).astype(np.float32)

    def large(batch: int) -> Graph:
        builder = GraphBuilder("large")
        x = builder.input("x", float_type(batch, 16, 48, 48))
        y = builder.node(Conv(pads=(1, 1, 1, 1)), x, builder.constant("w", filters), None)
        return builder.finish(builder.node(Relu(), y, name="y"))

    found = []
    for threads in (1, 3):
        assert compile_graph(large(2), CompileOptions(threads=threads)).threads == threads
        engine = CompiledEngine(large, CompileOptions(threads=threads))
        for _ in range(5):
            engine.run({"x": image})
        found.append(engine.collect())
    assert same(*found)


@pytest.mark.parametrize("runs", [64, 65, 130])
def test_many_runs_are_all_counted(runs: int) -> None:
    """Sums of channels are counted many runs at once."""
    order = np.arange(runs) % len(SAMPLES)
    assert same(profiled(order, 1), profiled(np.sort(order), 5))
    assert profiled(order, 1)["x"].total == runs * SAMPLES[0].size
