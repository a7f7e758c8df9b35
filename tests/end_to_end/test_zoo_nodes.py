"""Every int8 node of real models on onnxruntime's own integers, against onnxruntime's results."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from qglow.exporter import export_qdq
from qglow.profiling.samples import Sample
from qglow.report.layer_report import LayerError
from qglow.report.layers import compare_layers
from qglow.report.oracle import OnnxruntimeModel
from tests.end_to_end.zoo_flow import ALL_NAMES, MODELS, inputs, quantized

EXACT = ("Conv", "Gemm")


@cache
def layers(name: str) -> tuple[LayerError, ...]:
    """Errors by node over one batch of real data."""
    batch = MODELS[name].batches[0]
    model, fed = quantized(name, batch), inputs(name, batch)
    rows = [Sample(str(row), {k: array[row] for k, array in fed.items()}) for row in range(batch)]
    return compare_layers(model.source, model.graph, rows).layers


@pytest.mark.parametrize("name", ALL_NAMES)
def test_onnxruntime_loads_the_export_unchanged(name: str) -> None:
    batch = MODELS[name].batches[0]
    graph, fed = quantized(name, batch).graph, inputs(name, batch)
    found = OnnxruntimeModel(export_qdq(graph).SerializeToString())(fed)
    assert {key: array.shape for key, array in found.items()} == {v.name: v.type.shape for v in graph.outputs}
    assert all(np.all(np.isfinite(array)) for array in found.values())


@pytest.mark.parametrize("name", ALL_NAMES)
def test_convolutions_and_products_equal_the_optimised_oracle(name: str) -> None:
    matches = [(x, x.match) for x in layers(name) if x.operator in EXACT and x.match is not None]
    if not matches:
        pytest.skip(f"{name} has no Conv or Gemm with an int8 result")
    assert all(layer.optimized for layer, _ in matches)
    different = sum(match.different for _, match in matches)
    assert different <= 1e-5 * sum(match.elements for _, match in matches)
    assert max(match.max_step for _, match in matches) <= 1


@pytest.mark.parametrize("name", ALL_NAMES)
def test_other_operators_are_within_one_step(name: str) -> None:
    steps = {x.node: x.match.max_step for x in layers(name) if x.operator not in EXACT and x.match}
    assert steps and max(steps.values()) <= 1, {node: step for node, step in steps.items() if step > 1}


@pytest.mark.parametrize("name", ALL_NAMES)
def test_every_int8_result_is_compared(name: str) -> None:
    missing = [x.node for x in layers(name) if x.match is None and x.result.is_quantized]
    assert not missing


@pytest.mark.parametrize("name", ALL_NAMES)
def test_no_node_alone_costs_more_than_its_rounding_explains(name: str) -> None:
    """A scale that is wrong by a factor, or a zero point by a step, shows here and nowhere else.

    What clipping and rounding of the very result cost is explained: a range that calibration has
    narrowed, or probabilities far below one step.
    """
    levels = {x.node: x.isolated.sqnr_db for x in layers(name) if x.isolated and not _is_explained(x)}
    assert not levels or min(levels.values()) > 12.0, min(levels.items(), key=lambda item: item[1])


def _is_explained(layer: LayerError) -> bool:
    quantization = layer.result.quantization
    if quantization is None or layer.isolated is None or layer.rounding is None:
        return False
    return layer.isolated.rmse <= 1.1 * layer.rounding * quantization.scale
