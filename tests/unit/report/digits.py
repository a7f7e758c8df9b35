"""The embedded example, profiled and quantized once for all tests that need a real network."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from qglow.graph.graph import Graph
from qglow.importer import import_model
from qglow.passes.pipeline import canonicalize
from qglow.profiling.datasets import DataSet, open_data
from qglow.profiling.engine import InterpreterEngine
from qglow.profiling.samples import InputSpec, batches
from qglow.quantization.pipeline import QuantizedGraph, quantize_with

CALIB_DATA = Path(__file__).parents[3] / "calib_data"
MODEL = CALIB_DATA / "digits.onnx"


@dataclass(frozen=True)
class Example:
    """The float graph that was quantized, channels equalized, and its int8 form, both for batch 1."""

    float_graph: Graph
    quantized: QuantizedGraph


@cache
def example() -> Example:
    engine = InterpreterEngine(canonical)
    count = 0
    for batch in batches(data("calib.npz", 64), 32):
        engine.run(batch.inputs)
        count += len(batch)
    quantized = quantize_with(canonical(1), engine.collect(), count)
    return Example(quantized.source, quantized)


def canonical(batch: int) -> Graph:
    """The float graph for a batch size."""
    return canonicalize(import_model(MODEL, {"input": (batch, 1, 8, 8)}).graph)


def data(name: str, samples: int) -> DataSet:
    """The first samples of a file in calib_data/."""
    graph = canonical(1)
    specs = {v.name: InputSpec(v.type.shape[1:], v.type.element.dtype) for v in graph.inputs}
    return open_data(CALIB_DATA / name, specs, samples=samples)
