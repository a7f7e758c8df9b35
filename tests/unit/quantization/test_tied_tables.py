"""Tables that are the transposed weights of a product get its integers, in every form that these have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qglow
from qglow.core.types import Array
from qglow.graph.graph import Graph, Node
from qglow.graph.ops.blocks import BlockGather
from qglow.graph.rewriting import operand
from scripts.benchmarks.measurements.decoding import own_shapes
from scripts.random_llama import LlamaSize, random_llama
from tests.unit.importer.tiny import save

SIZE = LlamaSize(layers=1, width=64, heads=4, groups=4, inner=64, words=400)
FORMS: dict[str, dict[str, Any]] = {
    "int8": {"weights": "int8"},
    "int4": {"weights": "int4"},
    "symmetric": {"weights": "int4:16:symmetric"},
    "float16": {"weights": "int4:32:float16"},
    "int2": {"weights": "int2:16"},
    "dynamic": {"dynamic": True},
    "dynamic blocks": {"weights": "int4", "dynamic": True},
}


def loaded(folder: Path) -> qglow.Model:
    path = save(random_llama(SIZE), folder, "llama.onnx")
    return qglow.load_model(path, own_shapes(qglow.load_model(path)))


def lookup(graph: Graph) -> Node:
    """The look-up of tokens."""
    return next(node for node in graph.nodes if node.name == "Gather_0")


def product(graph: Graph) -> Node:
    """What multiplies by the head."""
    found = [
        node
        for node in graph.nodes
        if any(v is not None and v.name.startswith("output.weight") for v in node.inputs[1:2])
    ]
    (one,) = found
    return one


def drawn(graph: Graph) -> dict[str, Array]:
    random = np.random.default_rng(0)
    given: dict[str, Array] = {}
    for value in graph.inputs:
        shape = value.type.shape
        given[value.name] = random.normal(size=shape).astype(np.float32)
    given["input_ids"] = random.integers(0, SIZE.words, given["input_ids"].shape)
    given["attention_mask"] = np.ones(given["attention_mask"].shape, np.int64)
    given["position_ids"] = np.arange(8, 16)[None]
    return given


@pytest.mark.parametrize("form", FORMS)
def test_the_table_has_the_integers_of_the_head(form: str, tmp_path: Path) -> None:
    model = loaded(tmp_path)
    quantized = model.quantize(**FORMS[form])
    node, head = lookup(quantized.graph), product(quantized.graph)
    np.testing.assert_array_equal(operand(node).data, np.asarray(operand(head, 1).data).T)
    if isinstance(node.operator, BlockGather):
        for name in ("scales", "zero_points"):
            own, theirs = node.operand(name), head.operand(name)
            assert (own is None) == (theirs is None) == (name == "zero_points" and form == "symmetric")
            if own is not None and theirs is not None:
                np.testing.assert_array_equal(own.data, np.asarray(theirs.data).T)
    report = quantized.report
    assert report is not None
    table = SIZE.words * SIZE.width
    assert 4 * SIZE.parameters <= report.weight_bytes_before < 4 * (SIZE.parameters + table / 2)
    assert report.weight_bytes_after < (0.75 if form == "int8" else 0.5) * report.weight_bytes_before
    given = drawn(quantized.graph)
    real, found = model.compile()(given)["logits"], quantized.compile()(given)["logits"]
    assert np.corrcoef(real.ravel(), found.ravel())[0, 1] > (0.8 if form == "int2" else 0.99)


def test_words_that_are_not_the_head_stay_float(tmp_path: Path) -> None:
    made = random_llama(SIZE)
    head = next(tensor for tensor in made.graph.initializer if tensor.name == "output.weight.transposed")
    head.raw_data = (np.frombuffer(head.raw_data, np.float32) * np.float32(2)).tobytes()
    path = save(made, tmp_path, "llama.onnx")
    quantized = qglow.load_model(path, own_shapes(qglow.load_model(path))).quantize(weights="int8")
    assert operand(lookup(quantized.graph)).type.is_float


def test_a_table_with_a_format_of_its_own_keeps_it(tmp_path: Path) -> None:
    form = qglow.Recipe().with_overrides(weights="int8:16").weights
    rule = qglow.Rule(qglow.Match(operator="Gather"), weights=form)
    recipe = qglow.Recipe().with_overrides(weights="int4")
    quantized = loaded(tmp_path).quantize(recipe=qglow.Recipe(weights=recipe.weights, rules=(rule,)))
    operator = lookup(quantized.graph).operator
    assert isinstance(operator, BlockGather) and (operator.bits, operator.block) == (8, 16)


def test_rounding_anew_takes_the_table_along(tmp_path: Path) -> None:
    model = loaded(tmp_path)
    given = drawn(model.quantize(weights="int4").graph)
    samples = {name: np.concatenate([array] * 2) for name, array in given.items()}
    np.savez(tmp_path / "samples.npz", **samples)
    chosen: dict[str, Any] = {"weights": "int4", "calibration_data": tmp_path / "samples.npz"}
    nearest = model.quantize(weights="int4")
    rounded = model.quantize(rounding="gptq", **chosen)
    head = np.asarray(operand(product(rounded.graph), 1).data)
    assert np.any(head != operand(product(nearest.graph), 1).data)
    np.testing.assert_array_equal(operand(lookup(rounded.graph)).data, head.T)


def test_the_report_says_where_rows_come_from(tmp_path: Path) -> None:
    report = loaded(tmp_path).quantize(weights="int4").report
    assert report is not None
    (entry,) = [entry for entry in report.log if entry.pass_name == "tie-tables"]
    assert (entry.where, entry.what) == ("Gather_0", "its rows are the weights of 'MatMul_81'")
    node = next(node for node in report.float_nodes if node.name == "Gather_0")
    assert node.dtype.startswith("int4")


def test_static_int8_ties_too(tmp_path: Path) -> None:
    model = loaded(tmp_path)
    given = drawn(model.quantize(weights="int4").graph)
    np.savez(tmp_path / "samples.npz", **{name: np.concatenate([array] * 4) for name, array in given.items()})
    quantized = model.quantize(model.profile(tmp_path / "samples.npz"), check=False, scheme="transformer")
    node, head = lookup(quantized.graph), product(quantized.graph)
    assert not operand(node).type.is_float
    np.testing.assert_array_equal(operand(node).data, np.asarray(operand(head, 1).data).T)
    real, found = model.compile()(given)["logits"], quantized.compile()(given)["logits"]
    assert np.corrcoef(real.ravel(), found.ravel())[0, 1] > 0.99
