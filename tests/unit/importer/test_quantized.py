"""Models that bring their quantization: operators on integers, and what is wrong with their parameters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import qglow
from qglow.core.errors import ModelError, QglowError, UnsupportedError
from qglow.core.types import Array, Quantization
from qglow.graph.interpreter import Interpreter
from qglow.graph.ops.quantize import Dequantize
from qglow.importer import import_model
from qglow.importer.rules import contributed_operators
from qglow.passes import canonicalize
from qglow.quantization.imported import quantize_imported
from qglow.targets.registry import running_names
from tests.fuzzing import examples
from tests.unit.importer.test_transformers import CASES
from tests.unit.importer.tiny import save, session, tiny_model

RNG = np.random.default_rng(11)
SHAPE = [1, 4, 6, 6]


def parameters(
    name: str, scale: float | Array, zero: int | Array, dtype: type = np.uint8
) -> dict[str, Array]:
    return {f"{name}_s": np.asarray(scale, np.float32), f"{name}_z": np.asarray(zero, dtype)}


PARAMETERS = {
    **parameters("x", 0.02, 120),
    **parameters("a", 0.03, 100),
    **parameters("y", 0.0473, 110),
    **parameters("w", 0.01, 0, np.int8),
    **parameters("v", np.array([0.01, 0.02, 0.005]), np.zeros(3), np.int8),
}


# Without VNNI onnxruntime's integer operators add two products in 16 bits, where larger weights saturate.
LARGEST_WEIGHT = 127 if {"avxvnni", "avx512vnni"} & set(running_names()) else 63


def weights(*shape: int) -> Array:
    return RNG.integers(-LARGEST_WEIGHT, LARGEST_WEIGHT + 1, shape).astype(np.int8)


def integers(*nodes: NodeProto, **constants: Array) -> ModelProto:
    """x float -> integers xq -> these nodes, up to yq -> y float."""
    ends = (
        helper.make_node("QuantizeLinear", ["x", "x_s", "x_z"], ["xq"], name="first"),
        *nodes,
        helper.make_node("DequantizeLinear", ["yq", "y_s", "y_z"], ["y"], name="last"),
    )
    return contributed(tiny_model(ends, {"x": SHAPE}, ["y"], {**PARAMETERS, **constants}))


def contributed(model: ModelProto) -> ModelProto:
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def operator(kind: str, *inputs: str, domain: str = "com.microsoft", **attributes: Any) -> NodeProto:
    return helper.make_node(kind, list(inputs), ["yq"], name="op", domain=domain, **attributes)


X = ("xq", "x_s", "x_z")
Y = ("y_s", "y_z")
FLAT = helper.make_node("Flatten", ["xq"], ["rows"])
ROWS = ("rows", "x_s", "x_z")
OTHER = helper.make_node("QuantizeLinear", ["x", "a_s", "a_z"], ["aq"])
A = ("aq", "a_s", "a_z")
BIAS = {"b": RNG.integers(-3000, 3000, 3).astype(np.int32)}
POOL: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}

MODELS: dict[str, ModelProto] = {
    "QLinearConv": integers(
        operator("QLinearConv", *X, "w", "v_s", "v_z", *Y, "b", domain="", pads=[1, 1, 1, 1]),
        w=weights(3, 4, 3, 3),
        **BIAS,
    ),
    "QLinearConv of one scale": integers(
        operator("QLinearConv", *X, "w", "w_s", "w_z", *Y, domain="", group=2), w=weights(2, 2, 1, 1)
    ),
    "QLinearMatMul": integers(
        FLAT, operator("QLinearMatMul", *ROWS, "w", "v_s", "v_z", *Y, domain=""), w=weights(144, 3)
    ),
    "QGemm": integers(
        FLAT, operator("QGemm", *ROWS, "w", "v_s", "v_z", "b", *Y, transB=1), w=weights(3, 144), **BIAS
    ),
    "QLinearAdd": integers(OTHER, operator("QLinearAdd", *X, *A, *Y)),
    "QLinearMul": integers(OTHER, operator("QLinearMul", *X, *A, *Y)),
    "QLinearConcat": integers(OTHER, operator("QLinearConcat", *Y, *X, *A, axis=1)),
    "QLinearGlobalAveragePool": integers(operator("QLinearGlobalAveragePool", *X, *Y)),
    "QLinearAveragePool": integers(operator("QLinearAveragePool", *X, *Y, **POOL)),
    "QLinearSigmoid": integers(operator("QLinearSigmoid", *X, *Y)),
    "QLinearLeakyRelu": integers(operator("QLinearLeakyRelu", *X, *Y, alpha=0.1)),
    "QLinearSoftmax": integers(operator("QLinearSoftmax", *X, *Y, axis=-1, opset=13)),
}


def int8_result(model: ModelProto, folder: Path) -> tuple[set[str], Array, Array]:
    """Operators of the int8 graph, its result and onnxruntime's on one random input."""
    path = save(model, folder)
    result = quantize_imported(canonicalize(import_model(path).graph))
    feeds = {"x": np.random.default_rng(5).normal(0, 1.5, SHAPE).astype(np.float32)}
    (expected,) = session(path).run(["y"], feeds)
    names = {node.name for node in result.report.quantized}
    return names, Interpreter(result.graph).run(feeds)["y"], expected


@pytest.mark.parametrize("name", MODELS)
def test_operators_on_integers_give_what_onnxruntime_gives(name: str, tmp_path: Path) -> None:
    names, found, expected = int8_result(MODELS[name], tmp_path)
    step = float(PARAMETERS["y_s"])
    assert found.shape == expected.shape
    assert np.max(np.abs(found - expected)) <= step * 1.001, "more than one step apart"
    exact = {"QLinearConv", "QLinearMatMul", "QGemm", "QLinearConcat"}
    assert np.mean(found == expected) >= (1.0 if name.split()[0] in exact else 0.97)
    assert "op" in names or name == "QLinearSoftmax"


def test_every_operator_of_the_other_domain_is_tried() -> None:
    borders = {"DequantizeLinear", "QuantizeLinear"}  # test_quantized_int16.py has them
    sums = {"DynamicQuantizeMatMul", "MatMulIntegerToFloat"}  # test_integer_sums.py has them
    blocks = {"MatMulNBits", "GatherBlockQuantized"}  # test_blocks.py and test_block_tables.py have them
    decoders = {"GroupQueryAttention"}  # test_grouped_attention.py has it
    recurrent = {"DynamicQuantizeLSTM"}  # test_quantized_recurrent.py has it
    experts = {"MoE", "QMoE"}  # test_experts.py has them
    fused = {case.operator for case in CASES.values()} | decoders | recurrent | experts
    assert set(contributed_operators()) - borders - sums - blocks - fused <= set(MODELS)


def test_qgemm_without_parameters_of_its_result_gives_float(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "x_s", "x_z"], ["xq"]),
        FLAT,
        helper.make_node("QGemm", [*ROWS, "w", "w_s", "w_z", "b"], ["y"], domain="com.microsoft"),
    ]
    constants = {**PARAMETERS, "w": weights(144, 3), **BIAS}
    model = contributed(tiny_model(nodes, {"x": SHAPE}, ["y"], constants))
    names, found, expected = int8_result(model, tmp_path)
    assert len(names) == 2
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_data_movement_passes_integers_on(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MaxPool", ["xq"], ["pooled"], **POOL),
        helper.make_node("Transpose", ["pooled"], ["turned"], perm=[0, 2, 3, 1]),
        helper.make_node("Concat", ["turned", "turned"], ["yq"], axis=1),
    ]
    model = integers(*nodes)
    model.graph.node[-1].input[1:] = ["x_s", "x_z"]
    names, found, expected = int8_result(model, tmp_path)
    assert len(names) == 3
    np.testing.assert_array_equal(found, expected)


def test_a_zero_point_that_is_left_out_is_that_of_uint8(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "x_s"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "x_s"], ["y"]),
    ]
    graph = import_model(save(tiny_model(nodes, {"x": [4]}, ["y"], PARAMETERS), tmp_path)).graph
    assert graph.nodes[0].output.type.quantization == Quantization.per_tensor(0.02, -128)
    found = Interpreter(graph).run({"x": np.array([-1.0, 0.0, 1.0, 9.0], np.float32)})["y"]
    np.testing.assert_allclose(found, [0.0, 0.0, 1.0, 5.1], rtol=1e-6)


def test_weights_keep_their_integers_through_movement_and_quantization(tmp_path: Path) -> None:
    """Gemm's transB, and float weights that the model itself quantizes, one scale a column."""
    nodes = [
        helper.make_node("QuantizeLinear", ["w", "v_s", "v_z"], ["wq"], axis=0),
        helper.make_node("DequantizeLinear", ["wq", "v_s", "v_z"], ["wr"], axis=0),
        helper.make_node("Gemm", ["x", "wr"], ["y"], transB=1),
    ]
    w = RNG.normal(0, 1, (3, 5)).astype(np.float32)
    constants = {**PARAMETERS, "w": w}
    model = tiny_model(nodes, {"x": [2, 5]}, ["y"], constants)
    graph = canonicalize(import_model(save(model, tmp_path)).graph)
    kept = [node for node in graph.nodes if isinstance(node.operator, Dequantize)]
    assert len(kept) == 1 and kept[0].inputs[0] is not None
    integer = kept[0].inputs[0]
    scales = PARAMETERS["v_s"]
    expected = np.clip(np.rint(w / scales[:, None]), -128, 127).astype(np.int8)
    assert integer.data is not None and integer.type.quantization is not None
    np.testing.assert_array_equal(integer.data, expected.T)
    assert integer.type.quantization.axis == 1


def test_unsigned_constants_of_other_operators_are_numbers(tmp_path: Path) -> None:
    nodes = [helper.make_node("Cast", ["c"], ["f"], to=1), helper.make_node("Add", ["x", "f"], ["y"])]
    model = tiny_model(nodes, {"x": [2]}, ["y"], {"c": np.array([1, 200], np.uint8)})
    graph = import_model(save(model, tmp_path)).graph
    (result,) = Interpreter(graph).run({"x": np.zeros(2, np.float32)}).values()
    np.testing.assert_array_equal(result, [1, 200])


def integer_input(kind: int, zero: Array) -> ModelProto:
    nodes = [helper.make_node("DequantizeLinear", ["x", "x_s", "z"], ["y"], name="d")]
    return tiny_model(nodes, {"x": [2, 3]}, ["y"], {**PARAMETERS, "z": zero}, input_type=kind)


@pytest.mark.parametrize("zero", [np.int8(-128), np.int8(3), np.uint8(0)])
def test_an_infinite_scale_of_computed_values_gives_their_zero_point_and_then_nan(
    zero: np.generic, tmp_path: Path
) -> None:
    """NNCF writes it for masks whose range is that of all floats; Softmax behind it is guarded."""
    least = np.finfo(np.float32).min
    nodes = [
        helper.make_node("Where", ["c", "x", "least"], ["m"]),
        helper.make_node("QuantizeLinear", ["m", "endless", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "endless", "z"], ["d"]),
        helper.make_node("Add", ["d", "x"], ["y"]),
        helper.make_node("DequantizeLinear", ["q", "one", "z"], ["n"]),
    ]
    constants = {"c": np.arange(5) > 2, "least": least, "endless": np.float32(np.inf), "z": zero}
    constants["one"] = np.float32(1)
    path = save(tiny_model(nodes, {"x": [2, 5]}, ["y", "n"], constants), tmp_path)
    feeds = {"x": RNG.standard_normal((2, 5)).astype(np.float32)}
    expected = session(path).run(["y", "n"], feeds)
    assert np.isnan(expected[0]).all()
    found = Interpreter(import_model(path, native=True).graph).run(feeds)
    np.testing.assert_array_equal(found["y"], expected[0])
    np.testing.assert_array_equal(found["n"], expected[1])


def test_an_input_of_integers_has_the_parameters_that_it_is_dequantized_with(tmp_path: Path) -> None:
    model = integer_input(TensorProto.UINT8, np.array(100, np.uint8))
    graph = import_model(save(model, tmp_path)).graph
    assert graph.inputs[0].type.quantization == Quantization.per_tensor(0.02, -28)
    model = integer_input(TensorProto.INT8, np.array(-3, np.int8))
    graph = import_model(save(model, tmp_path)).graph
    assert graph.inputs[0].type.quantization == Quantization.per_tensor(0.02, -3)


def test_an_input_of_integers_may_have_a_scale_of_float16(tmp_path: Path) -> None:
    model = integer_input(TensorProto.UINT8, np.array(100, np.uint8))
    [given] = [tensor for tensor in model.graph.initializer if tensor.name == "x_s"]
    given.CopyFrom(numpy_helper.from_array(np.array(0.02, np.float16), "x_s"))
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    model.opset_import[0].version = 19
    path = save(model, tmp_path)
    feeds = {"x": np.arange(97, 103, dtype=np.uint8).reshape(2, 3)}
    (expected,) = session(path).run(None, feeds)
    found = qglow.load_model(path, native=True).quantize().compile()(feeds)["y"]
    assert found.dtype == expected.dtype == np.float16
    np.testing.assert_allclose(found, expected, rtol=1e-3)


@pytest.mark.parametrize(("kind", "zero"), [(TensorProto.UINT8, np.uint8), (TensorProto.INT8, np.int8)])
def test_an_input_of_uint8_is_uint8_for_callers(kind: int, zero: type, tmp_path: Path) -> None:
    made = import_model(save(integer_input(kind, np.array(100, zero)), tmp_path))
    assert made.graph.inputs[0].type.unsigned == (zero is np.uint8) and not made.bound_dimensions


@pytest.mark.parametrize("kind", [TensorProto.UINT8, TensorProto.INT8])
def test_an_input_of_integers_that_nothing_reads_has_no_parameters(kind: int, tmp_path: Path) -> None:
    model = integer_input(kind, np.array(3, helper.tensor_dtype_to_np_dtype(kind)))
    model.graph.input.append(helper.make_tensor_value_info("unused", kind, [2]))
    graph = import_model(save(model, tmp_path)).graph
    assert [value.name for value in graph.inputs] == ["x", "unused"]
    assert graph.inputs[1].type.element.dtype == helper.tensor_dtype_to_np_dtype(kind)
    assert not graph.inputs[1].type.is_quantized


def test_a_zero_point_of_another_sign_than_its_input_is_an_error(tmp_path: Path) -> None:
    model = integer_input(TensorProto.UINT8, np.array(1, np.int8))
    with pytest.raises(UnsupportedError, match="its zero point is 1 of int8, the input is uint8"):
        import_model(save(model, tmp_path))


# What is wrong with parameters


def plain() -> ModelProto:
    """x -> quantize -> dequantize -> Conv with weights of its own -> y"""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "x_s", "x_z"], ["xq"], name="q"),
        helper.make_node("DequantizeLinear", ["xq", "x_s", "x_z"], ["xr"], name="d"),
        helper.make_node("DequantizeLinear", ["w", "v_s", "v_z"], ["wr"], name="dw", axis=0),
        helper.make_node("Conv", ["xr", "wr"], ["y"], name="c"),
    ]
    return tiny_model(nodes, {"x": SHAPE}, ["y"], {**PARAMETERS, "w": weights(3, 4, 1, 1)}, opset=21)


def constant(name: str, value: object, dtype: type) -> Callable[[ModelProto], None]:
    def change(model: ModelProto) -> None:
        (found,) = (t for t in model.graph.initializer if t.name == name)
        found.CopyFrom(onnx.numpy_helper.from_array(np.asarray(value, dtype), name))

    return change


def attribute(node: int, name: str, value: int) -> Callable[[ModelProto], None]:
    def change(model: ModelProto) -> None:
        for old in [a for a in model.graph.node[node].attribute if a.name == name]:
            model.graph.node[node].attribute.remove(old)
        model.graph.node[node].attribute.append(helper.make_attribute(name, value))

    return change


def reads(node: int, index: int, name: str) -> Callable[[ModelProto], None]:
    def change(model: ModelProto) -> None:
        model.graph.node[node].input[index] = name

    return change


BROKEN = {
    "scale 0": (constant("x_s", 0.0, np.float32), "the scale 'x_s' holds 0.0"),
    "scale of weights infinite": (constant("v_s", [1, np.inf, 1], np.float32), "the scale 'v_s' holds inf"),
    "scale NaN": (constant("x_s", np.nan, np.float32), "the scale 'x_s' holds nan"),
    "scale negative": (constant("v_s", [1, -1, 1], np.float32), "the scale 'v_s' holds -1.0"),
    "scale empty": (constant("x_s", [], np.float32), "the scale 'x_s' is empty"),
    "scales of another number": (constant("v_s", [1, 1], np.float32), "2 scales do not fit axis 0"),
    "wrong axis": (attribute(2, "axis", 1), "3 scales do not fit axis 1 of 'w'"),
    "axis out of range": (attribute(2, "axis", 7), "3 scales do not fit axis 7"),
    "zero points of another number": (constant("v_z", [0, 0], np.int8), "3 scales, but 2 zero points"),
    "zero point of another sign": (constant("v_z", [0, 0, 0], np.uint8), "'v_z' is uint8, but the integers"),
    "zero point float": (constant("v_z", [0, 0, 0], np.float32), "zero point"),
}
UNSUPPORTED = {
    "blocks": (attribute(2, "block_size", 2), r"scales \[3\] of blocks of 2 do not fit"),
    "blocks of activations": (attribute(0, "block_size", 2), "do not fit blocks of 2"),
    "one scale a channel of a computed value": (reads(0, 1, "v_s"), "do not fit axis"),
    "other parameters than quantized with": (reads(1, 1, "a_s"), "with other parameters"),
    "output type": (attribute(0, "output_dtype", TensorProto.INT4), "it gives int4"),
    "computed scale": (reads(1, 1, "x"), "must be a constant"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_parameters_are_errors_of_one_line(name: str, tmp_path: Path) -> None:
    change, expected = BROKEN[name]
    model = plain()
    change(model)
    with pytest.raises(ModelError) as caught:
        import_model(save(model, tmp_path), native=True)
    assert expected in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_is_not_supported_is_named(name: str, tmp_path: Path) -> None:
    change, expected = UNSUPPORTED[name]
    model = plain()
    change(model)
    with pytest.raises(QglowError, match=expected):
        import_model(save(model, tmp_path), native=True)


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_quantized_models_give_errors_of_the_project(data: st.DataObject, tmp_path: Path) -> None:
    model = [plain(), MODELS["QLinearConv"], MODELS["QLinearConcat"], MODELS["QGemm"]][
        data.draw(st.integers(0, 3))
    ]
    damaged = ModelProto()
    damaged.CopyFrom(model)
    node = damaged.graph.node[data.draw(st.integers(0, len(damaged.graph.node) - 1))]
    index = data.draw(st.integers(0, len(node.input) - 1))
    known = [t.name for t in damaged.graph.initializer] + ["x", ""]
    node.input[index] = data.draw(st.sampled_from(known))
    tensor = damaged.graph.initializer[data.draw(st.integers(0, len(damaged.graph.initializer) - 1))]
    if data.draw(st.booleans()):
        tensor.data_type = data.draw(st.sampled_from([1, 2, 3, 4, 5, 6, 7, 10, 16]))
    try:
        graph = canonicalize(import_model(save(damaged, tmp_path)).graph)
        quantize_imported(graph)
    except QglowError as error:
        assert str(error)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_rows_of_an_integer_table_get_their_parameters_where_they_are_read(
    kind: type[np.generic], tmp_path: Path
) -> None:
    """onnxruntime's quantizer leaves the table's Gather without parameters in its operator format."""
    bounds, scale = np.iinfo(kind), np.array(0.05, np.float32)
    table = np.random.default_rng(0).integers(bounds.min, bounds.max, (9, 4), endpoint=True).astype(kind)
    zero = np.array(bounds.min + 120, kind)
    constants = {"table": table, "scale": scale, "zero": zero, "other": np.array(0.11, np.float32)}
    add = ["rows", "scale", "zero", "q", "scale", "zero", "other", "zero"]
    nodes = [
        helper.make_node("Gather", ["table", "places"], ["rows"]),
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("QLinearAdd", add, ["sum"], domain="com.microsoft"),
        helper.make_node("DequantizeLinear", ["sum", "other", "zero"], ["y"]),
    ]
    model = tiny_model(nodes, {"x": (5, 4)}, ["y"], constants)
    model.graph.input.append(helper.make_tensor_value_info("places", TensorProto.INT64, [5]))
    model.opset_import.add(domain="com.microsoft", version=1)
    path = save(model, tmp_path)
    x = np.random.default_rng(1).uniform(-4, 4, (5, 4)).astype(np.float32)
    inputs = {"x": x, "places": np.array([8, 0, 3, 3, 1])}
    (wanted,) = session(path).run(None, inputs)
    quantized = qglow.load_model(path).quantize()
    np.testing.assert_array_equal(quantized.compile()(inputs)["y"], wanted)
    assert any(
        v.type.is_quantized for n in quantized.graph.nodes if n.operator.name == "Add" for v in n.inputs
    )
