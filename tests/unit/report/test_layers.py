from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from onnx import helper

import qglow
from qglow.core.errors import DataError
from qglow.core.types import Array, TensorType, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Value
from qglow.graph.ops.elementwise import Relu
from qglow.graph.ops.shape import Transpose
from qglow.report.layer_report import LayerReport, layer_section
from qglow.report.layers import compare_layers
from qglow.report.tensors import counterpart
from qglow.toolchain.observation import Observed
from tests.unit.importer.tiny import saturates, tiny_model
from tests.unit.report.digits import data, example
from tests.unit.report.models import Tapped


@cache
def report() -> LayerReport:
    model = example()
    graph = model.quantized.graph
    return compare_layers(model.float_graph, graph, data("test.npz", 3), observed=Tapped(graph))


def test_every_int8_node_is_there() -> None:
    names = {layer.node for layer in report().layers}
    assert {node.name for node in example().quantized.report.quantized} <= names
    assert report().samples == 3


def test_convolutions_and_products_equal_the_optimised_oracle() -> None:
    layers = [x for x in report().layers if x.operator in ("Conv", "Gemm") and x.match is not None]
    assert len(layers) >= 10
    assert all(x.optimized for x in layers)
    elements = sum(x.match.elements for x in layers if x.match is not None)
    different = sum(x.match.different for x in layers if x.match is not None)
    assert different <= 1e-5 * elements
    assert all(x.match is not None and x.match.max_step <= 1 for x in layers)


def test_other_operators_are_within_one_step() -> None:
    matches = [x.match for x in report().layers if x.match is not None]
    assert max(match.max_step for match in matches) <= 1


def test_matches_add_up() -> None:
    for optimized in (True, False):
        total = report().matches(optimized)
        assert total.elements > 0 and total.different == 0
    every = sum(x.match.elements for x in report().layers if x.match is not None)
    assert report().matches(True).elements + report().matches(False).elements == every


def test_a_float_result_is_compared_as_float() -> None:
    gemm = next(x for x in report().layers if x.operator == "Gemm")
    assert gemm.match is None and gemm.float_match is not None and gemm.float_match < 1e-5


def test_isolated_errors_are_smaller_than_accumulated_ones_at_the_end() -> None:
    last = [x for x in report().layers if x.operator == "Conv"][-1]
    assert last.isolated is not None and last.accumulated is not None
    assert 15.0 < last.accumulated.sqnr_db < last.isolated.sqnr_db


def test_the_ranking_begins_with_the_worst() -> None:
    levels = [x.isolated.sqnr_db for x in report().ranked() if x.isolated is not None]
    assert levels == sorted(levels)
    assert len(report().ranked()) == len(report().layers)


def test_rounding_is_that_of_a_uniform_error_where_nothing_clips() -> None:
    rounding = [x.rounding for x in report().layers if x.rounding is not None]
    assert rounding and max(rounding) < 0.5


def test_without_a_program_nothing_is_accumulated() -> None:
    model = example()
    plain = compare_layers(model.float_graph, model.quantized.graph, data("test.npz", 1))
    assert all(layer.accumulated is None for layer in plain.layers)


def test_less_than_a_batch_is_an_error() -> None:
    model = example()
    with pytest.raises(DataError, match="fewer samples"):
        compare_layers(model.float_graph, model.quantized.graph, [])


def test_conversions_stand_for_what_they_convert() -> None:
    model = example()
    names = counterpart(model.float_graph, model.quantized.graph)
    floats = {value.name for value in model.float_graph.values()}
    assert set(names.values()) <= floats
    outputs = [value.name for value in model.quantized.graph.outputs]
    assert [names[name] for name in outputs] == outputs


@pytest.mark.parametrize(
    ("shape", "buffer", "transposed"),
    [
        ((1, 3, 4, 5), (1, 4, 5, 3), True),
        ((1, 3, 4, 5), (1, 3, 4, 5), False),
        ((1, 4, 4, 4), (1, 4, 4, 4), True),
    ],
)
def test_images_are_read_in_the_order_of_the_graph(
    shape: tuple[int, ...], buffer: tuple[int, ...], transposed: bool
) -> None:
    builder = GraphBuilder("g")
    value = builder.node(Relu(), builder.input("x", float_type(*shape)), name="v")
    array = np.arange(np.prod(buffer), dtype=np.float32).reshape(buffer)
    found = Observed({"v": array}).logical(value)
    expected = array.transpose(0, 3, 1, 2) if transposed else array
    assert found is not None and np.array_equal(found, expected)


def test_a_transposed_value_lies_as_in_the_graph() -> None:
    builder = GraphBuilder("g")
    source = builder.input("x", float_type(1, 4, 4, 4))
    value = builder.node(Transpose(perm=(0, 2, 3, 1)), source, name="v")
    array = np.arange(64, dtype=np.float32).reshape(1, 4, 4, 4)
    assert Observed({"v": array}).logical(value) is array


def test_values_without_a_buffer_are_absent() -> None:
    kind: TensorType = float_type(2, 3)
    assert Observed({}).logical(Value("v", kind)) is None
    assert Observed({"v": np.zeros(5)}).logical(Value("v", kind)) is None


def test_weights_in_blocks_have_errors_of_their_own() -> None:
    rng = np.random.default_rng(8)
    constants = {name: rng.normal(size=(32, 32)).astype(np.float32) for name in ("v", "w")}
    nodes = [helper.make_node("MatMul", ["x", "v"], ["h"]), helper.make_node("MatMul", ["h", "w"], ["y"])]
    model = qglow.load_model(tiny_model(nodes, {"x": [4, 32]}, ["y"], constants))
    data = {"x": rng.normal(size=(8, 32)).astype(np.float32)}
    found = {bits: qglow.compare_layers(model.quantize(weights=bits), data) for bits in ("int4", "int8")}
    for report in found.values():
        assert [x.operator for x in report.layers] == ["BlockGemm", "BlockGemm"]
        assert all(x.float_match is not None and x.float_match < 1e-5 for x in report.layers)
        first, second = (x.accumulated for x in report.layers)
        assert first is not None and second is not None and second.sqnr_db < first.sqnr_db
    for few, many in zip(found["int4"].layers, found["int8"].layers, strict=True):
        assert few.isolated is not None and many.isolated is not None
        assert few.isolated.sqnr_db + 15 < many.isolated.sqnr_db


def one_product() -> tuple[qglow.Model, dict[str, Array]]:
    """A model that multiplies rows by weights, and rows."""
    rng = np.random.default_rng(8)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    weights = rng.normal(size=(32, 32)).astype(np.float32)
    model = qglow.load_model(tiny_model([node], {"x": [4, 32]}, ["y"], {"w": weights}))
    return model, {"x": rng.normal(size=(8, 32)).astype(np.float32)}


def test_weights_in_blocks_of_measured_rows_have_errors_alone() -> None:
    model, data = one_product()
    report = qglow.compare_layers(model.quantize(weights="int8:16", dynamic=True), data)
    layer = next(x for x in report.layers if x.operator == "BlockGemm")
    assert layer.isolated is not None and layer.accumulated is not None
    assert 30.0 < layer.isolated.sqnr_db == pytest.approx(layer.accumulated.sqnr_db, abs=0.5)


def test_float_results_that_are_equal_are_all_equal() -> None:
    model, data = one_product()
    report = qglow.compare_layers(model.quantize(dynamic=True), data)
    (product,) = [x for x in report.layers if x.operator == "Gemm"]
    assert saturates() or product.float_match == 0.0
    assert "to 0e+00" not in str(layer_section(report))
