"""Recipes name a node of the file by its name or its result, also where import makes several nodes of it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import qglow
from qglow.core.types import Array
from qglow.graph.graph import Graph

FORMS = {
    "signal": ("Conv", (2, 3, 12), (4, 3, 3), {}),
    "image": ("Conv", (2, 3, 6, 6), (4, 3, 3, 3), {}),
    "volume": ("Conv", (2, 3, 4, 4, 4), (4, 3, 2, 2, 2), {}),
    "transposed signal": ("ConvTranspose", (2, 3, 12), (3, 4, 4), {"strides": [2]}),
    "transposed image": ("ConvTranspose", (2, 3, 6, 6), (3, 4, 2, 2), {"strides": [2, 2]}),
    "matrix added": ("Gemm", (2, 16), (16, 8), {"beta": 0.5}),
}


def two_layers(form: str) -> tuple[onnx.ModelProto, Array]:
    """A layer `first` whose result is the output `hidden`, light ones behind it, and samples of `x`."""
    rng = np.random.default_rng(17)
    operator, shape, weights, attributes = FORMS[form]
    bias = {"Conv": weights[:1], "ConvTranspose": weights[1:2], "Gemm": (shape[0], 8)}[operator]
    arrays = {"w": rng.normal(size=weights), "b": rng.normal(size=bias)}
    nodes = [
        helper.make_node(operator, ["x", "w", "b"], ["hidden"], "first", **attributes),
        helper.make_node("Add", ["hidden", "hidden"], ["doubled"], "twice"),
        helper.make_node("Relu", ["doubled"], ["y"], "relu"),
    ]
    graph = helper.make_graph(
        nodes,
        "two_layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("hidden", "y")],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    return model, rng.normal(size=(8 * shape[0], *shape[1:])).astype(np.float32)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["first", "hidden"])
def test_the_product_of_a_named_node_stays_float(form: str, name: str) -> None:
    proto, samples = two_layers(form)
    model = qglow.load_model(proto)
    profile = model.profile({"x": samples})
    plain = model.quantize(profile, repair=False, check=False)
    kept = model.quantize(profile, repair=False, check=False, keep_float=[name])
    assert [_reads_floats(made.graph) for made in (plain, kept)] == [[False], [True]]


def _reads_floats(graph: Graph) -> list[bool]:
    """Whether the products of a graph read floats."""
    kinds = [node.input_types()[0] for node in graph.nodes if node.operator.sums_products]
    return [kind is not None and kind.is_float for kind in kinds]


@pytest.mark.parametrize("form", FORMS)
def test_the_node_that_computes_has_the_name(form: str) -> None:
    model = qglow.load_model(two_layers(form)[0])
    [product] = [node for node in model.graph.nodes if node.operator.sums_products]
    assert product.name == "first"


def test_a_pool_of_a_signal_has_its_name() -> None:
    node = helper.make_node("MaxPool", ["x"], ["y"], "pool", kernel_shape=[2], strides=[2])
    graph = helper.make_graph(
        [node],
        "pooled",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, 4])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    [pool] = qglow.load_model(model).graph.nodes_named("pool")
    assert pool.operator.name == "MaxPool"
