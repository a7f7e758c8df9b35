from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import qglow
from qglow.core.errors import DataError, ModelError, UsageError
from qglow.core.types import float_type
from qglow.exporter.expose import expose_outputs, produced_names
from qglow.report.comparison_result import FLOAT, INT8
from qglow.report.oracle import OnnxruntimeModel
from tests.unit.report.models import linear_model


def test_symbolic_dimensions_are_bound() -> None:
    model = OnnxruntimeModel(linear_model().SerializeToString(), shapes={"x": (5, 4)})
    assert model.inputs == {"x": float_type(5, 4)}
    assert model.outputs == ["logits"]
    x = np.ones((5, 4), np.float32)
    assert model({"x": x})["logits"].shape == (5, 3)


def test_an_unbound_dimension_is_an_error() -> None:
    with pytest.raises(UsageError, match="'x'"):
        OnnxruntimeModel(linear_model().SerializeToString())


def test_files_that_are_no_models_are_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"no model")
    with pytest.raises(ModelError, match=r"broken\.onnx"):
        OnnxruntimeModel(path)


def test_optimised_and_plain_runs_agree() -> None:
    data = linear_model(relu=True).SerializeToString()
    x = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    plain = OnnxruntimeModel(data, shapes={"x": (2, 4)}, optimize=False)({"x": x})
    assert np.allclose(OnnxruntimeModel(data, shapes={"x": (2, 4)})({"x": x})["logits"], plain["logits"])


def test_inputs_that_a_kernel_refuses_are_told_in_one_line() -> None:
    kinds = {"x": onnx.TensorProto.FLOAT, "places": onnx.TensorProto.INT64}
    graph = helper.make_graph(
        [helper.make_node("GatherElements", ["x", "places"], ["y"], axis=1)],
        "g",
        [helper.make_tensor_value_info(name, kind, [1, 4]) for name, kind in kinds.items()],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 4])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model = OnnxruntimeModel(made.SerializeToString())
    beyond = {"x": np.zeros((1, 4), np.float32), "places": np.array([[0, 1, 2, 900]])}
    with pytest.raises(DataError, match="onnxruntime cannot run .* on these inputs: .*GatherElements"):
        model(beyond)


def test_a_bound_run_reads_the_arrays_it_was_given() -> None:
    model = OnnxruntimeModel(linear_model().SerializeToString(), shapes={"x": (2, 4)})
    x = np.zeros((2, 4), np.float32)
    results, run = model.bind({"x": x})
    x[:] = 3.0
    run()
    assert np.array_equal(results["logits"], model({"x": x})["logits"])


def test_threads_do_not_spin_on_after_a_run(tmp_path: Path) -> None:
    """They would take the time of whoever has the next turn of a benchmark."""
    weights = onnx.numpy_helper.from_array(np.ones((512, 512), np.float32), "w")
    kind = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [kind("x", onnx.TensorProto.FLOAT, [512, 512])],
        [kind("y", onnx.TensorProto.FLOAT, [512, 512])],
        [weights],
    )
    path = tmp_path / "product.onnx"
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    _, run = OnnxruntimeModel(path, threads=4).bind({"x": np.ones((512, 512), np.float32)})
    spent = 0.0
    for _ in range(10):
        run()
        before = time.process_time()
        time.sleep(0.02)
        spent += time.process_time() - before
    assert spent < 0.03


def test_intermediate_values_become_outputs() -> None:
    data = linear_model(relu=True).SerializeToString()
    assert produced_names(data) == {"hidden", "logits"}
    exposed = expose_outputs(data, ["hidden", "logits"])
    model = OnnxruntimeModel(exposed, shapes={"x": (2, 4)})
    assert model.outputs == ["logits", "hidden"]
    results = model({"x": np.ones((2, 4), np.float32)})
    assert np.array_equal(np.maximum(results["hidden"], 0), results["logits"])


def test_exposing_a_constant_is_refused() -> None:
    with pytest.raises(UsageError, match="'w'"):
        expose_outputs(linear_model().SerializeToString(), ["w"])


def test_models_made_by_hand_are_valid() -> None:
    onnx.checker.check_model(linear_model(relu=True))


def test_a_weight_that_two_products_share_can_be_compared(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    weight = numpy_helper.from_array(np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", 4]) for name in "xy"]
    graph = helper.make_graph(nodes, "tied", values[:1], values[1:], [weight])
    opset = [helper.make_opsetid("", 13)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "tied.onnx")
    data = {"x": np.random.default_rng(1).normal(size=(16, 4)).astype(np.float32)}
    model = qglow.load_model(tmp_path / "tied.onnx")
    found = qglow.compare(model.quantize(model.profile(data), repair=False), data, threads=1)
    assert found.pairing(INT8, FLOAT).overall.sqnr_db > 15.0
    assert capfd.readouterr().err == ""


def test_outputs_whose_number_of_axes_is_stated_wrong_are_bound() -> None:
    """CatBoost states [N] for what onnxruntime's operator gives as [N, 1]."""
    tree = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [1, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_values": [0.5, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [1.5, -2.5],
        "n_targets": 1,
    }
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", **tree)
    x, y = (
        helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s)
        for n, s in (("x", ["N", 2]), ("y", ["N"]))
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 2)]
    proto = helper.make_model(helper.make_graph([node], "tree", [x], [y]), opset_imports=opsets, ir_version=8)
    _, run = OnnxruntimeModel(proto.SerializeToString(), shapes={"x": (3, 2)}).bind(
        {"x": np.ones((3, 2), np.float32)}
    )
    run()
    run()
    assert list(qglow.bench(qglow.load_model(proto), alternations=1).latencies)
