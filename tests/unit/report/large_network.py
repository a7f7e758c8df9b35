"""A generated network of about 300 nodes, quantized and measured: reports have to stay readable for it."""

from __future__ import annotations

from functools import cache

import numpy as np

from qglow.core.types import float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Value
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.movement import Slice
from qglow.graph.ops.pool import GlobalAveragePool
from qglow.graph.ops.shape import Concat, Reshape, Transpose
from qglow.profiling.engine import InterpreterEngine
from qglow.profiling.profiler import profile
from qglow.profiling.samples import Sample
from qglow.quantization.pipeline import QuantizedGraph, quantize
from qglow.recipe import Calibration, Match, Rule
from qglow.recipe.schema import Recipe
from qglow.report.layer_report import LayerReport
from qglow.report.layers import compare_layers
from qglow.report.report import ModelInfo, Report
from qglow.report.verdict import WorstValue, predicted_verdict
from tests.unit.profiling.networks import MODEL

BLOCKS = 37
CHANNELS = 8


def channels(start: int, end: int) -> Slice:
    """Channels of a tensor [1,8,6,6]."""
    return Slice((0, start, 0, 0), (1, end, 6, 6), (1, 1, 1, 1))


def large_network(blocks: int = BLOCKS, prefix: str = "") -> Graph:
    """Blocks of convolutions and data movement that branch and meet again: x [1,3,6,6] to y [1,4]."""
    random = np.random.default_rng(3)
    b = GraphBuilder("large")

    def array(*shape: int) -> np.ndarray:
        return (random.normal(size=shape) * 0.3).astype(np.float32)

    def scaled(name: str, *shape: int) -> np.ndarray:
        """Weights that keep the size of values; every tenth block has a channel that reaches far."""
        weights = array(*shape) * (2.0 / np.sqrt(np.prod(shape[1:])))
        if name.endswith("1/left"):
            weights[0] *= 40.0
        return weights.astype(np.float32)

    def conv(x: Value, name: str, kernel: int = 3, inputs: int = CHANNELS, count: int = CHANNELS) -> Value:
        w = b.constant(f"{prefix}{name}.weight", scaled(name, count, inputs, kernel, kernel))
        bias = b.constant(f"{prefix}{name}.bias", array(count))
        pads = (kernel // 2,) * 4
        return b.node(Conv(pads=pads, lo=0.0), x, w, bias, name=prefix + name)

    x = conv(b.input(f"{prefix}x", float_type(1, 3, 6, 6)), "stem", inputs=3)
    for i in range(blocks):
        at = f"layer{i}"
        left = conv(x, f"{at}/left")
        half = CHANNELS // 2
        first = b.node(channels(0, half), left, name=f"{prefix}{at}/first_half")
        second = b.node(channels(half, CHANNELS), left, name=f"{prefix}{at}/second_half")
        narrow = conv(first, f"{at}/narrow", 1, half, half)
        joined = b.node(Concat(axis=1), narrow, second, name=f"{prefix}{at}/join")
        turned = b.node(Transpose(perm=(0, 1, 3, 2)), joined, name=f"{prefix}{at}/turn")
        mixed = conv(turned, f"{at}/mix", 1)
        x = b.node(Add(), mixed, x, name=f"{prefix}{at}/add")
    mean = b.node(GlobalAveragePool(), x, name=f"{prefix}mean")
    flat = b.node(Reshape(shape=(1, CHANNELS)), mean, name=f"{prefix}flat")
    w, bias = (
        b.constant(f"{prefix}head.weight", array(CHANNELS, 4)),
        b.constant(f"{prefix}head.bias", array(4)),
    )
    graph = b.finish(b.node(Gemm(), flat, w, bias, name=f"{prefix}head"))
    for node in graph.nodes:
        node.name = f"{node.output.name}.{node.operator.name}"
    return graph


def samples(count: int, prefix: str = "") -> list[Sample]:
    random = np.random.default_rng(1)
    arrays = random.normal(size=(count, 3, 6, 6)).astype(np.float32)
    return [Sample(f"sample {i}", {f"{prefix}x": array}) for i, array in enumerate(arrays)]


@cache
def quantized(blocks: int = BLOCKS, prefix: str = "") -> tuple[QuantizedGraph, LayerReport]:
    """The network in int8, one of its nodes in float, and the errors of its layers."""
    graph = large_network(blocks, prefix)
    engine = InterpreterEngine(lambda batch: graph)
    found = profile(graph, iter(samples(4, prefix)), engine, model=MODEL, batch_size=1)
    kept = Rule(Match(name=r"(?s).*layer2/mix"), dtype="float")
    made = quantize(
        large_network(blocks, prefix), found, Recipe(calibration=Calibration("minmax"), rules=(kept,))
    )
    return made, compare_layers(made.source, made.graph, samples(2, prefix))


def large_report(blocks: int = BLOCKS, prefix: str = "") -> Report:
    made, layers = quantized(blocks, prefix)
    graph = made.graph
    info = ModelInfo(
        f"{prefix}large",
        "large.onnx",
        "0" * 64,
        17,
        {v.name: v.type for v in graph.inputs},
        {v.name: v.type for v in graph.outputs},
    )
    measured = [x for x in layers.ranked() if x.isolated is not None]
    worst = tuple(WorstValue(x.node, x.isolated.sqnr_db, "rounding") for x in measured[:5] if x.isolated)
    verdict = predicted_verdict(18.0, worst)
    return Report(
        info, "schema: asymmetric\n", "fold-batchnorm", made.report, "", None, layers, None, verdict
    )
