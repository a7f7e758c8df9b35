"""Models that bring parameters of 16 bits: what becomes int16, what stays float and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from qglow.core.errors import QglowError, UnsupportedError, UsageError
from qglow.core.types import Array, ElementType, Quantization
from qglow.graph.interpreter import Interpreter, interpret
from qglow.importer import import_model
from qglow.passes import canonicalize
from qglow.quantization.imported import quantize_imported
from qglow.quantization.pipeline import QuantizedGraph
from qglow.recipe.schema import Recipe
from qglow.toolchain import compile_graph
from tests.unit.importer.tiny import random_feeds, save, session, tiny_model

SHAPE = (2, 6)
STEPS = {"a": 2e-4, "b": 3e-4, "y": 5e-4}
KINDS = {"int16": (np.int16, 0), "uint16": (np.uint16, 32768)}


def model(nodes: Sequence[NodeProto], kind: str = "int16", **constants: Array) -> ModelProto:
    """Nodes between dequantized inputs a and b (of x and z) and a result r, which is quantized.

    Scales are called a_s, b_s and y_s, the zero point of all is zp; w_s are six scales.
    """
    dtype, zero = KINDS[kind]
    ends = [
        *through("x", "a", "a_s"),
        *through("z", "b", "b_s"),
        *nodes,
        *through("r", "y", "y_s"),
    ]
    scales = {f"{name}_s": np.array(step, np.float32) for name, step in STEPS.items()}
    scales["w_s"] = np.linspace(0.01, 0.02, 6).astype(np.float32)
    given = {"zp": np.array(zero, dtype), **scales, **constants}
    return tiny_model(ends, {"x": SHAPE, "z": SHAPE}, ["y"], given, opset=21)


def through(real: str, result: str, scale: str) -> list[NodeProto]:
    return [
        helper.make_node("QuantizeLinear", [real, scale, "zp"], [f"{result}q"], name=f"q_{result}"),
        helper.make_node("DequantizeLinear", [f"{result}q", scale, "zp"], [result], name=f"d_{result}"),
    ]


def node(kind: str, *inputs: str, output: str = "r", **attributes: Any) -> NodeProto:
    return helper.make_node(kind, list(inputs), [output], name="op", **attributes)


def weights(dtype: type, largest: int) -> tuple[list[NodeProto], dict[str, Array]]:
    """A Gemm of a with integer weights, one scale an output channel."""
    data = np.random.default_rng(3).integers(-largest, largest + 1, (6, 6)).astype(dtype)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "w_s", "w_z"], ["wr"], axis=0),
        node("Gemm", "a", "wr", transB=1),
    ]
    return nodes, {"w": data, "w_z": np.zeros(6, dtype)}


def result(given: ModelProto, folder: Path) -> tuple[QuantizedGraph, Array, Array]:
    """The integer form, what compiled code gives, which is what the interpreter gives, and onnxruntime."""
    path = save(given, folder)
    made = quantize_imported(canonicalize(import_model(path).graph))
    rng = np.random.default_rng(5)
    feeds = {name: rng.normal(0, 1.5, SHAPE).astype(np.float32) for name in ("x", "z")}
    (expected,) = session(path).run(["y"], feeds)
    found = Interpreter(made.graph).run(feeds)["y"]
    np.testing.assert_array_equal(compile_graph(made.graph)(feeds)["y"], found)
    return made, found, expected


def quantized(made: QuantizedGraph) -> set[str]:
    return {entry.name for entry in made.report.quantized}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operator", ["Add", "Mul", "Max", "Gemm"])
def test_int16_and_centred_uint16_are_the_same_integers(operator: str, kind: str, tmp_path: Path) -> None:
    nodes, constants = weights(np.int8, 127) if operator == "Gemm" else ([node(operator, "a", "b")], {})
    made, found, expected = result(model(nodes, kind, **constants), tmp_path)
    assert quantized(made) == {"op"} and not made.report.float_nodes
    values = [v for v in made.graph.values() if v.type.is_quantized and not v.is_constant]
    assert {v.type.quantization for v in values} <= {
        Quantization.per_tensor(step, 0, ElementType.INT16) for step in STEPS.values()
    }
    assert np.abs(found - expected).max() <= STEPS["y"] * 1.01


def test_the_other_domain_has_16_bits_in_older_opsets(tmp_path: Path) -> None:
    standard = model([node("Add", "a", "b")], "uint16")
    other = model([node("Add", "a", "b")], "uint16")
    other.opset_import[0].version = 13
    other.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    for given in other.graph.node:
        given.domain = "com.microsoft" if given.op_type.endswith("Linear") else ""
    (made, found, expected), (_, wanted, _) = result(other, tmp_path), result(standard, tmp_path)
    assert quantized(made) == {"op"}
    np.testing.assert_array_equal(found, wanted)
    assert np.abs(found - expected).max() <= STEPS["y"] * 1.01


def test_a_zero_point_may_come_from_a_constant_node(tmp_path: Path) -> None:
    """uint16 and bfloat16 are 16 bits alike, and not the same."""
    given = model([node("Add", "a", "b")], "uint16")
    (zero,) = (tensor for tensor in given.graph.initializer if tensor.name == "zp")
    given.graph.node.insert(0, helper.make_node("Constant", [], ["zp"], value=zero))
    given.graph.initializer.remove(zero)
    made, found, expected = result(given, tmp_path)
    assert quantized(made) == {"op"}
    assert np.abs(found - expected).max() <= STEPS["y"] * 1.01
    zero.data_type = TensorProto.BFLOAT16
    given.graph.node[0].CopyFrom(helper.make_node("Constant", [], ["zp"], value=zero))
    with pytest.raises(QglowError):
        import_model(save(given, tmp_path), native=True)


def test_int16_beside_int8_is_rescaled(tmp_path: Path) -> None:
    """The sum reads int16 and what was int16 and is int8 now."""
    nodes = [
        helper.make_node("QuantizeLinear", ["b", "n_s", "n_z"], ["nq"]),
        helper.make_node("DequantizeLinear", ["nq", "n_s", "n_z"], ["n"]),
        node("Add", "a", "n"),
    ]
    narrow = {"n_s": np.array(0.04, np.float32), "n_z": np.array(120, np.uint8)}
    made, found, expected = result(model(nodes, **narrow), tmp_path)
    assert quantized(made) == {"op"}
    kinds = {v.type.element for v in made.graph.values() if v.type.is_quantized}
    assert kinds == {ElementType.INT8, ElementType.INT16}
    assert np.abs(found - expected).max() <= STEPS["y"] * 1.01


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([node("Sigmoid", "a")], "a table of 65536 entries"),
        (
            [helper.make_node("Transpose", ["b"], ["t"]), node("MatMul", "a", "t", output="m")]
            + [helper.make_node("Concat", ["m"] * 3, ["r"], axis=1)],
            "both of its operands are computed",
        ),
    ],
    ids=["table", "product"],
)
def test_what_has_no_int16_form_stays_float(nodes: list[NodeProto], reason: str, tmp_path: Path) -> None:
    made, found, expected = result(model(nodes), tmp_path)
    assert any(e.name == "op" and reason in e.reason for e in made.report.float_nodes)
    assert np.abs(found - expected).max() <= STEPS["y"] * 1.01


@pytest.mark.parametrize(("largest", "exact"), [(127, True), (20000, False)])
def test_weights_of_16_bits_become_int8(largest: int, exact: bool, tmp_path: Path) -> None:
    nodes, constants = weights(np.int16, largest)
    constants["w_s"] = np.linspace(1, 2, 6).astype(np.float32) / largest
    made, found, expected = result(model(nodes, **constants), tmp_path)
    assert quantized(made) == {"op"}
    assert any("rounded to symmetric int8" in e.what for e in made.report.log) is not exact
    error = np.abs(found - expected).max()
    assert error <= STEPS["y"] * 1.01 if exact else error < 0.05


def changed(name: str, value: Array) -> ModelProto:
    given = model([node("Add", "a", "b")])
    (tensor,) = (t for t in given.graph.initializer if t.name == name)
    tensor.CopyFrom(tiny_model([], {}, [], {name: value}).graph.initializer[0])
    return given


def at_end(kind: int, **types: int) -> ModelProto:
    first = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"])
    if "output_type" in types:
        first = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    zero = np.zeros((), np.int16 if kind == TensorProto.INT16 else np.uint16)
    given = {"s": np.array(0.1, np.float32), "z": zero}
    return tiny_model([first], {"x": SHAPE}, ["y"], given, opset=21, **types)


REFUSED = {
    "output": (at_end(TensorProto.INT16, output_type=TensorProto.INT16), "end with DequantizeLinear"),
}


@pytest.mark.parametrize("zero", [np.array(7, np.int16), np.array(9, np.uint16)])
def test_other_zero_points_are_computed_with_as_numbers(zero: Array, tmp_path: Path) -> None:
    path = save(changed("zp", zero), tmp_path)
    graph = canonicalize(import_model(path, native=True).graph)
    fed = random_feeds(graph)
    found = interpret(graph, fed)
    for name, expected in zip(found, session(path).run(list(found), fed), strict=True):
        np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", REFUSED)
def test_what_16_bits_cannot_be_is_refused_with_its_place(name: str, tmp_path: Path) -> None:
    given, expected = REFUSED[name]
    with pytest.raises(UnsupportedError, match=expected):
        import_model(save(given, tmp_path), native=True)


def test_a_zero_point_of_another_width_is_an_error(tmp_path: Path) -> None:
    given = changed("zp", np.array(0, np.int16))
    given.graph.node[1].input[2] = "other"
    given.graph.initializer.append(
        tiny_model([], {}, [], {"other": np.array(0, np.int8)}).graph.initializer[0]
    )
    with pytest.raises(QglowError, match="'other' is int8, but the integers are int16|[Tt]ype"):
        import_model(save(given, tmp_path), native=True)


def test_an_int8_interface_of_int16_values_is_refused(tmp_path: Path) -> None:
    graph = canonicalize(import_model(save(model([node("Add", "a", "b")]), tmp_path)).graph)
    with pytest.raises(UsageError, match="^io int8: the model has 'x' in int16; leave it float"):
        quantize_imported(graph, Recipe(io="int8"))
