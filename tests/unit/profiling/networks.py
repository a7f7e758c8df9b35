"""Small graphs, data and profiles for tests of profiling and quantization."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from qglow.core.types import float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.pool import GlobalAveragePool
from qglow.graph.ops.shape import Reshape
from qglow.profiling.engine import InterpreterEngine
from qglow.profiling.profile import ModelReference, Profile
from qglow.profiling.profiler import profile
from qglow.profiling.samples import Sample

MODEL = ModelReference(Path("model.onnx"), "ab" * 32)


def residual_network(batch: int = 1, seed: int = 0, weight: float = 0.3) -> Graph:
    """Conv with Relu, depthwise Conv, Add of both, mean, Gemm: x [N,3,6,6] to y [N,4]."""
    random = np.random.default_rng(seed)

    def array(*shape: int) -> np.ndarray:
        return (random.normal(size=shape) * weight).astype(np.float32)

    b = GraphBuilder("residual")
    x = b.input("x", float_type(batch, 3, 6, 6))
    w0, b0 = b.constant("w0", array(8, 3, 3, 3)), b.constant("b0", array(8))
    stem = b.node(Conv(pads=(1, 1, 1, 1), lo=0.0), x, w0, b0, name="stem")
    w1 = b.constant("w1", array(8, 1, 3, 3))
    depthwise = b.node(Conv(pads=(1, 1, 1, 1), group=8), stem, w1, name="depthwise")
    w2, b2 = b.constant("w2", array(8, 8, 1, 1)), b.constant("b2", array(8))
    pointwise = b.node(Conv(lo=0.0), depthwise, w2, b2, name="pointwise")
    total = b.node(Add(), pointwise, depthwise, name="total")
    mean = b.node(GlobalAveragePool(), total, name="mean")
    flat = b.node(Reshape(shape=(batch, 8)), mean, name="flat")
    y = b.node(Gemm(), flat, b.constant("w3", array(8, 4)), b.constant("b3", array(4)), name="y")
    return b.finish(y)


def samples(count: int, seed: int = 1) -> list[Sample]:
    """Inputs of `residual_network`."""
    random = np.random.default_rng(seed)
    arrays = random.normal(size=(count, 3, 6, 6)).astype(np.float32)
    return [Sample(f"sample {i}", {"x": array}) for i, array in enumerate(arrays)]


def profile_of(count: int = 12, batch_size: int = 1, seed: int = 1, graph: Graph | None = None) -> Profile:
    """A profile of `residual_network` (or `graph`, for batch 1 only) by the interpreter."""
    engine = InterpreterEngine(residual_network if graph is None else lambda batch: graph)
    data: Iterator[Sample] = iter(samples(count, seed))
    return profile(graph or residual_network(), data, engine, model=MODEL, batch_size=batch_size)
