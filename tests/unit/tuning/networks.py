"""A small network, inputs for it, and its int8 forms, for tests of the search for choices."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qglow.core.types import Array
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter
from qglow.quantization.pipeline import QuantizedGraph, quantize
from qglow.recipe.choices import Calibration
from qglow.recipe.schema import Recipe
from tests.unit.profiling.networks import profile_of, residual_network, samples

PROFILED = 30


def runs(count: int, seed: int = 9) -> list[dict[str, Array]]:
    """Inputs of the network."""
    return [{"x": sample.inputs["x"][None]} for sample in samples(count, seed)]


def quantized(calibration: str = "minmax") -> QuantizedGraph:
    """The network in int8, with its float graph."""
    options = Recipe(calibration=Calibration.parse(calibration))
    return quantize(residual_network(), profile_of(PROFILED), options)


def outputs(graph: Graph, inputs: Mapping[str, Array]) -> Array:
    """The one output, by the interpreter."""
    [array] = Interpreter(graph).run(dict(inputs)).values()
    return array


def sqnr_db(float_graph: Graph, int8_graph: Graph, given: list[dict[str, Array]]) -> float:
    """What int8 really loses on these inputs."""
    wanted = np.concatenate([outputs(float_graph, inputs) for inputs in given]).astype(np.float64)
    found = np.concatenate([outputs(int8_graph, inputs) for inputs in given])
    return float(10.0 * np.log10(np.sum(wanted**2) / np.sum((found - wanted) ** 2)))
