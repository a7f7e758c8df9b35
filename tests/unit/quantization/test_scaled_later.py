"""Errors of sums of measured rows and of rows of tied tables, whose scales later nodes apply."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

import qglow
from qglow.core.types import Array
from qglow.display.terminal import to_text
from qglow.graph.interpreter import interpret
from qglow.quantization.scaled_later import is_scaled_later, scaled_result
from qglow.report.tensors import counterpart
from qglow.tuning.mix import Precision
from qglow.tuning.order import order_nodes
from qglow.tuning.rehearsal import Rehearsal
from qglow.tuning.sensitivity import ROUNDING, WEIGHTS, decibels, sensitivity
from tests.unit.quantization.test_tied_tables import SIZE, drawn, loaded, lookup

Inputs = Mapping[str, Array]
WAYS = ("dynamic", "static")


def tied(way: str, folder: Path) -> tuple[qglow.QuantizedModel, list[Inputs]]:
    """A language model whose table is its head, int8 without and with a profile, and inputs for it."""
    model = loaded(folder)
    first, random = drawn(model.quantize(weights="int4").graph), np.random.default_rng(1)
    tokens = [random.integers(0, SIZE.words, first["input_ids"].shape) for _ in range(4)]
    runs = [{**first, "input_ids": each} for each in tokens]
    if way == "dynamic":
        return model.quantize(dynamic=True), runs
    np.savez(folder / "samples.npz", **{n: np.concatenate([run[n] for run in runs]) for n in first})
    return model.quantize(model.profile(folder / "samples.npz"), check=False, scheme="transformer"), runs


def power(arrays: Mapping[str, Array]) -> float:
    return sum(float(np.sum(np.square(array, dtype=np.float64))) for array in arrays.values())


def noise_db(
    quantized: qglow.QuantizedModel, run: Callable[[Inputs], Mapping[str, Array]], runs: list[Inputs]
) -> float:
    """The SQNR of all outputs of runs."""
    signal = noise = 0.0
    for inputs in runs:
        real, found = interpret(quantized.float_graph, inputs), run(inputs)
        signal += power(real)
        noise += power({name: found[name] - array for name, array in real.items()})
    return decibels(noise / signal)


@pytest.mark.parametrize("way", WAYS)
def test_the_report_of_layers_compares_reals(way: str, tmp_path: Path) -> None:
    quantized, runs = tied(way, tmp_path)
    graph = quantized.graph
    later = [node for node in graph.nodes if is_scaled_later(node)]
    assert lookup(graph) in later and len(later) > 5
    names = counterpart(quantized.float_graph, graph)
    assert not any(node.output.name in names for node in later)
    data = {name: np.concatenate([run[name] for run in runs]) for name in runs[0]}
    errors = {layer.node: layer for layer in qglow.compare_layers(quantized, data).layers}
    for node in later:
        layer, result = errors[node.name], scaled_result(node)
        assert result is not None and names[result.name] in {v.name for v in quantized.float_graph.values()}
        assert layer.isolated is not None and layer.isolated.sqnr_db > 30.0, node.name
        if layer.accumulated is not None:
            assert layer.accumulated.sqnr_db > 20.0, node.name
    assert sum(errors[node.name].accumulated is not None for node in later) > 5


@pytest.mark.parametrize("way", WAYS)
def test_errors_alone_add_up_to_the_whole(way: str, tmp_path: Path) -> None:
    quantized, runs = tied(way, tmp_path)
    found = sensitivity(quantized.float_graph, quantized.graph, runs)
    whole = noise_db(quantized, lambda inputs: interpret(quantized.graph, inputs), runs)
    assert abs(found.sqnr_db - whole) < 1.5
    graph = quantized.graph
    for node in graph.nodes:
        if is_scaled_later(node):
            assert found.of(node.output.name, WEIGHTS) > 0.0
            assert (found.of(node.output.name, ROUNDING) > 0.0) == (node is not lookup(graph))


def test_rounded_rows_count_where_nodes_become_float(tmp_path: Path) -> None:
    quantized, runs = tied("dynamic", tmp_path)
    found = sensitivity(quantized.float_graph, quantized.graph, runs)
    graph = quantized.graph
    cycles = {level: {node.name: float(level) for node in graph.nodes} for level in Precision}
    steps = order_nodes(quantized.float_graph, graph, found, cycles)
    names = {name for step in steps for name in step.mix.keep_float}
    later = [node for node in graph.nodes if is_scaled_later(node)]
    assert names == {node.name for node in later}
    alone = sum(found.of(node.output.name) for node in later)
    assert sum(step.noise for step in steps) == pytest.approx(alone)


@pytest.mark.parametrize("way", WAYS)
def test_a_rehearsal_has_the_rows_of_a_tied_table(way: str, tmp_path: Path) -> None:
    quantized, runs = tied(way, tmp_path)
    rehearsal = Rehearsal(quantized.float_graph, quantized.graph)
    weights_alone = noise_db(quantized, lambda inputs: rehearsal(inputs, {}), runs)
    found = sensitivity(quantized.float_graph, quantized.graph, runs)
    expected = decibels(sum(source.noise for source in found.sources if source.kind == WEIGHTS))
    assert abs(weights_alone - expected) < 1.5


def test_explanations_give_the_scales_that_come_later(tmp_path: Path) -> None:
    quantized, _runs = tied("dynamic", tmp_path)
    graph = quantized.graph
    product = next(node for node in graph.nodes if is_scaled_later(node) and node is not lookup(graph))
    text = to_text(quantized.explain(product.name), 200)
    assert "are measured while the model runs" in text and "Weights" in text
    assert f": {product.output.type.shape[-1]} scales, " in text and "one scale" not in text
    assert f": {SIZE.words} scales, " in to_text(quantized.explain(lookup(graph).name), 200)
