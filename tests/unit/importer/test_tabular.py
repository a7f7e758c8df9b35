"""Operators that converters write around a network over columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import qglow
from qglow.core.types import Array
from tests.unit.importer.tiny import save, session, tiny_model

RANDOM = np.random.default_rng(9)
NAN = float("nan")
REALS = np.array([[0.5, -1.25, 3.0, 2.0], [0.0, 0.0, 0.0, 0.0], [-4.0, 2.0, 1.5, -0.5]], np.float32)
WHOLE = np.array([[3, 0, 5, -2], [1, 1, 0, 4], [0, 0, 0, 0]])
HOLES = np.where(
    [[True, False, False, False], [False, True, True, False], [False] * 4], np.float32(NAN), REALS
)
WEIGHTS = [0.5, -1.0, 2.0, 0.25, 1.0, 0.75, -0.5, 0.125, -2.0, 1.5, 0.0, 3.0]


def learned(kind: str, x: Array, results: Sequence[str] = ("y",), **attributes: object) -> ModelProto:
    """A model of one operator, whose last result is of floats or, with whole labels, of integers."""
    node = helper.make_node(kind, ["x"], list(results), domain="ai.onnx.ml", **attributes)
    element = helper.np_dtype_to_tensor_dtype(x.dtype)
    made = tiny_model([node], {"x": ("n", *x.shape[1:])}, list(results), input_type=element)
    made.opset_import.add(domain="ai.onnx.ml", version=3)
    for output in made.graph.output:
        is_whole = (
            output.name == "label" or "value_int64s" in str(attributes) or "values_int64s" in attributes
        )
        output.type.tensor_type.elem_type = TensorProto.INT64 if is_whole else TensorProto.FLOAT
    return made


def network(offset: list[float], scale: list[float], kind: int = TensorProto.FLOAT) -> ModelProto:
    nodes = [
        helper.make_node("Scaler", ["x"], ["s"], domain="ai.onnx.ml", offset=offset, scale=scale),
        helper.make_node("MatMul", ["s", "w"], ["y"]),
    ]
    constants = {"w": RANDOM.normal(size=(4, 3)).astype(np.float32)}
    made = tiny_model(nodes, {"x": (1, 4)}, ["y"], constants, input_type=kind)
    made.opset_import.add(domain="ai.onnx.ml", version=1)
    return made


@pytest.mark.parametrize(
    ("offset", "scale"),
    [([0.5, -1.0, 3.0, 0.0], [2.0, 0.1, 1.0, -3.0]), ([0.25], [4.0])],
)
def test_columns_are_moved_and_scaled(tmp_path: Path, offset: list[float], scale: list[float]) -> None:
    path = save(network(offset, scale), tmp_path)
    model = qglow.load_model(path, native=True)
    x = RANDOM.normal(size=(1, 4)).astype(np.float32)
    (wanted,) = session(path).run(None, {"x": x})
    np.testing.assert_allclose(model.interpret({"x": x})["y"], wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(model.compile()({"x": x})["y"], wanted, rtol=1e-5, atol=1e-5)


def test_what_follows_it_is_int8(tmp_path: Path) -> None:
    """Its shape was not known, so that all of the model ran in onnxruntime."""
    model = qglow.load_model(save(network([0.5] * 4, [2.0, 1.0, 1.0, 0.5]), tmp_path))
    quantized = model.quantize(model.profile({"x": RANDOM.normal(size=(64, 4)).astype(np.float32)}))
    assert "Gemm" in {node.operator for node in quantized.report.quantized}
    assert quantized.verdict is not None and quantized.verdict.is_good


def test_whole_numbers_stay_with_onnxruntime(tmp_path: Path) -> None:
    path = save(network([0.5] * 4, [2.0] * 4, TensorProto.INT64), tmp_path)
    with pytest.raises(qglow.QglowError, match="supported are floats"):
        qglow.load_model(path, native=True)
    x = np.arange(4)[None]
    (wanted,) = session(path).run(None, {"x": x})
    np.testing.assert_allclose(qglow.load_model(path).compile()({"x": x})["y"], wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "x", "attributes"),
    [
        ("Imputer", HOLES, {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": NAN}),
        ("Imputer", REALS, {"imputed_value_floats": [7.0], "replaced_value_float": 0.0}),
        ("Imputer", WHOLE, {"imputed_value_int64s": [7], "replaced_value_int64": 0}),
        ("Normalizer", REALS, {"norm": "MAX"}),
        ("Normalizer", REALS, {"norm": "L1"}),
        ("Normalizer", WHOLE, {"norm": "L2"}),
        ("OneHotEncoder", WHOLE, {"cats_int64s": [0, 3, 5]}),
        ("OneHotEncoder", REALS, {"cats_int64s": [0, 3, -1], "zeros": 1}),
        ("LabelEncoder", WHOLE, {"keys_int64s": [3, 0], "values_floats": [0.5, 2.0], "default_float": -7.0}),
        ("LabelEncoder", WHOLE, {"keys_int64s": [3, 0, 4], "values_int64s": [40, 30, 10]}),
        ("LabelEncoder", REALS, {"keys_floats": [2.0, 0.5], "values_floats": [4.0, 3.0]}),
        ("Binarizer", REALS, {"threshold": 0.5}),
        ("FeatureVectorizer", WHOLE, {"inputdimensions": [4]}),
        ("LinearRegressor", REALS, {"coefficients": WEIGHTS[:8], "intercepts": [1.0, 2.0], "targets": 2}),
    ],
)
def test_operators_of_columns_are_native(kind: str, x: Array, attributes: dict[str, object]) -> None:
    """They ran in onnxruntime, and all that followed as well: their shapes were not known."""
    proto = learned(kind, x, **attributes)
    model = qglow.load_model(proto, native=True)
    (wanted,) = session(proto).run(None, {"x": x})
    for found in (model.interpret({"x": x})["y"], model.compile()({"x": x})["y"]):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_linear_classifiers_are_native(transform: str) -> None:
    proto = learned(
        "LinearClassifier",
        REALS,
        ("label", "y"),
        coefficients=WEIGHTS,
        intercepts=[1.0, 2.0, -1.0],
        classlabels_ints=[5, 7, 2],
        post_transform=transform,
    )
    label, scores = session(proto).run(None, {"x": REALS})
    found = qglow.load_model(proto, native=True).compile()({"x": REALS})
    np.testing.assert_array_equal(found["label"], label)
    np.testing.assert_allclose(found["y"], scores, rtol=1e-5, atol=1e-6)


def test_columns_are_picked_natively() -> None:
    nodes = [
        helper.make_node("ArrayFeatureExtractor", ["x", "places"], ["picked"], domain="ai.onnx.ml"),
        helper.make_node("ArgMax", ["picked"], ["place"], axis=1, keepdims=0),
        helper.make_node("ArrayFeatureExtractor", ["labels", "place"], ["y"], domain="ai.onnx.ml"),
    ]
    constants = {"places": np.array([2, 0, 1]), "labels": np.array([30, 10, 20])}
    proto = tiny_model(nodes, {"x": ("n", 4)}, ["y"], constants, output_type=TensorProto.INT64)
    proto.opset_import.add(domain="ai.onnx.ml", version=1)
    (wanted,) = session(proto).run(None, {"x": REALS})
    found = qglow.load_model(proto, native=True).compile()({"x": REALS})["y"]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("OneHotEncoder", {"cats_strings": ["a", "b"]}),
        ("LabelEncoder", {"keys_int64s": [1, 2], "values_strings": ["a", "b"]}),
        ("LinearRegressor", {"coefficients": WEIGHTS[:4], "post_transform": "PROBIT"}),
    ],
)
def test_other_forms_say_what_is_supported(kind: str, attributes: dict[str, object]) -> None:
    with pytest.raises(qglow.QglowError, match="strings|PROBIT"):
        qglow.load_model(learned(kind, WHOLE, **attributes), native=True)


def imputed(replaced: float, picked: bool = False) -> ModelProto:
    """A network over columns of which numbers may be missing; picked: whether x has them in another order."""
    nodes = [
        helper.make_node("Gather", ["x", "order"], ["columns"], axis=1),
        helper.make_node(
            "Imputer",
            ["columns"],
            ["whole"],
            domain="ai.onnx.ml",
            imputed_value_floats=[0.5],
            replaced_value_float=replaced,
        ),
        helper.make_node("MatMul", ["whole", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["y"]),
    ]
    rng = np.random.default_rng(3)
    constants = {"w": rng.normal(size=(4, 32)), "v": rng.normal(size=(32, 3))}
    stored = {name: array.astype(np.float32) for name, array in constants.items()}
    if picked:
        stored["order"] = np.array([2, 0, 3, 1])
    else:
        nodes = nodes[1:]
        nodes[0].input[0] = "x"
    made = tiny_model(nodes, {"x": ("n", 4)}, ["y"], stored)
    made.opset_import.add(domain="ai.onnx.ml", version=1)
    return made


@pytest.mark.parametrize("picked", [False, True])
def test_samples_may_miss_what_the_model_imputes(picked: bool) -> None:
    """NaN in data was refused, so that no model with an Imputer could be profiled on its own data."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(64, 4)).astype(np.float32)
    x[rng.random(x.shape) < 0.2] = NAN
    proto = imputed(NAN, picked)
    model = qglow.load_model(proto)
    quantized = model.quantize(model.profile({"x": x}))
    assert quantized.verdict is not None and quantized.verdict.is_good
    assert "Gemm" in {node.operator for node in quantized.report.quantized}
    (wanted,) = session(proto).run(None, {"x": x})
    error = quantized.compile()({"x": x})["y"] - wanted
    assert float(np.square(error).mean()) < 1e-3 * float(np.square(wanted).mean())
    assert len(list(qglow.run_data(quantized.compile(), {"x": x[:3]}))) == 3
    assert qglow.compare(quantized, {"x": x[:8]}).samples == 8


def test_nan_that_a_model_does_not_replace_is_refused() -> None:
    x = np.array([[0.5, NAN, 1.0, 2.0]], np.float32)
    model = qglow.load_model(imputed(0.0))
    with pytest.raises(qglow.DataError, match="'x' holds NaN"):
        model.profile({"x": x})
    with pytest.raises(qglow.DataError, match="'x' holds NaN, which output 'y' passes on"):
        list(qglow.run_data(model.compile(), {"x": x}))
    numbers = np.random.default_rng(5).normal(size=(32, 4)).astype(np.float32)
    quantized = model.quantize(model.profile({"x": numbers}), scheme="cnn")
    with pytest.raises(qglow.DataError, match=r"arrays\[1\]: input 'x' holds NaN; leave the sample out"):
        list(qglow.run_data(quantized.compile(), {"x": np.concatenate([numbers[:1], x])}))
