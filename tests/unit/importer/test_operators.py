"""Every import function, in the forms that the operator sets have given it, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from qglow.importer import import_model
from tests.unit.importer import (
    attention_cases,
    composed_cases,
    elementwise_cases,
    movement_cases,
    normalization_cases,
    place_cases,
    ranking_cases,
    recurrent_cases,
    reduce_cases,
    sampling_cases,
    transposed_cases,
    volume_cases,
    window_cases,
)
from tests.unit.importer.cases import IMAGE, Case, floats, ints, node
from tests.unit.importer.test_computed_places import BITS
from tests.unit.importer.test_computed_values import GENERATED
from tests.unit.importer.test_quantized import MODELS as QUANTIZED
from tests.unit.importer.tiny import assert_as_onnxruntime, save, tiny_model

W = {"w": floats(4, 6, 3, 3), "b": floats(4)}
CONV = (7, 11, 21)
CONVS = [
    Case("conv", node("Conv", "x", "w", "b"), CONV, constants=W),
    Case("conv-pads", node("Conv", "x", "w", pads=[1, 2, 0, 1], strides=[2, 1]), CONV, constants=W),
    Case("conv-dilated", node("Conv", "x", "w", dilations=[2, 3]), CONV, constants=W),
    Case(
        "conv-group",
        node("Conv", "x", "w", "b", group=2, kernel_shape=[3, 2]),
        CONV,
        constants={"w": floats(4, 3, 3, 2), "b": floats(4)},
    ),
    Case("conv-depthwise", node("Conv", "x", "w", group=6), CONV, constants={"w": floats(6, 1, 3, 3)}),
    *(
        Case(
            f"conv-{mode}-{stride}",
            node("Conv", "x", "w", auto_pad=mode, strides=[stride, stride]),
            CONV,
            constants={"w": floats(4, 6, 4, 3)},
        )
        for mode in ("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")
        for stride in (1, 2, 3)
    ),
]
MATRIX = {"x": (3, 5)}
TRANSPOSED = {"x": (5, 3)}
GEMMS = [
    Case("gemm", node("Gemm", "x", "w", "c"), (7, 9, 13), MATRIX, {"w": floats(5, 4), "c": floats(4)}),
    Case(
        "gemm-transb",
        node("Gemm", "x", "w", "c", transB=1),
        (9, 13),
        MATRIX,
        {"w": floats(4, 5), "c": floats(4)},
    ),
    Case("gemm-transa", node("Gemm", "x", "w", transA=1), (11, 13), TRANSPOSED, {"w": floats(5, 4)}),
    Case(
        "gemm-factors",
        node("Gemm", "x", "w", "c", alpha=0.5, beta=2.0),
        (9, 13),
        MATRIX,
        {"w": floats(5, 4), "c": floats(1, 4)},
    ),
    Case(
        "gemm-beta-zero",
        node("Gemm", "x", "w", "c", beta=0.0),
        (9, 13),
        MATRIX,
        {"w": floats(5, 4), "c": floats(4)},
    ),
    Case(
        "gemm-scalar-bias", node("Gemm", "x", "w", "c"), (9, 13), MATRIX, {"w": floats(5, 4), "c": floats(1)}
    ),
    Case(
        "gemm-matrix-bias",
        node("Gemm", "x", "w", "c", beta=3.0),
        (9, 13),
        MATRIX,
        {"w": floats(5, 4), "c": floats(3, 4)},
    ),
    Case(
        "gemm-column-bias",
        node("Gemm", "x", "w", "c"),
        (9, 13),
        MATRIX,
        {"w": floats(5, 4), "c": floats(3, 1)},
    ),
    Case(
        "gemm-computed",
        node("Gemm", "x", "w", "c", alpha=0.5, beta=0.25, transB=1),
        (9, 13),
        {"x": (3, 5), "w": (4, 5), "c": (3, 4)},
    ),
    Case("gemm-computed-no-bias", node("Gemm", "x", "w", alpha=0.5), (11, 13), {"x": (3, 5), "w": (5, 4)}),
    Case("matmul", node("MatMul", "x", "w"), (9, 13), MATRIX, {"w": floats(5, 4)}),
    Case("matmul-batched", node("MatMul", "x", "w"), (9, 13), {"x": (2, 1, 3, 5), "w": (6, 5, 2)}),
]
POOLS = [
    Case(
        "max", node("MaxPool", "x", kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]), (8, 10, 11, 12)
    ),
    Case("max-ceil", node("MaxPool", "x", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1), (10, 12)),
    Case("max-dilated", node("MaxPool", "x", kernel_shape=[2, 2], dilations=[3, 2]), (10, 12)),
    Case(
        "max-same", node("MaxPool", "x", kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"), (8, 12)
    ),
    Case("average", node("AveragePool", "x", kernel_shape=[3, 2], pads=[1, 0, 1, 1]), (7, 10, 19)),
    Case(
        "average-with-pad",
        node("AveragePool", "x", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1),
        (7, 11, 19),
    ),
    Case(
        "average-ceil", node("AveragePool", "x", kernel_shape=[2, 3], strides=[2, 2], ceil_mode=1), (10, 19)
    ),
    Case(
        "average-same",
        node("AveragePool", "x", kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_LOWER"),
        (11, 19),
    ),
    Case("global-average", node("GlobalAveragePool", "x"), (7, 13, 21)),
]
STATISTICS = {"s": floats(6), "h": floats(6), "m": floats(6), "v": np.abs(floats(6))}
ELEMENTWISE = [
    *(
        Case(f"{op}-{name}".lower(), node(op, "x", "c"), (7, 13, 14), constants={"c": floats(*shape)})
        for op in ("Add", "Sub", "Mul")
        for name, shape in {"same": IMAGE, "channel": (6, 1, 1), "scalar": ()}.items()
    ),
    Case("add-two-inputs", node("Add", "x", "z"), (7, 13, 14), {"x": (2, 1, 4), "z": (3, 1)}),
    *(Case(op.lower(), node(op, "x"), (7, 13)) for op in ("Relu", "Sigmoid", "Tanh", "Identity")),
    Case("clip-attributes", node("Clip", "x", min=0.0, max=6.0), (7, 10)),
    Case("clip-minimum", node("Clip", "x", min=-0.5), (7, 10)),
    Case(
        "clip-inputs",
        node("Clip", "x", "lo", "hi"),
        (11, 12, 13),
        constants={"lo": np.float32(-1), "hi": np.float32(0.5)},
    ),
    Case(
        "clip-crossed",
        node("Clip", "x", "lo", "hi"),
        (11, 13),
        constants={"lo": np.float32(1), "hi": np.float32(-0.5)},
    ),
    Case("clip-maximum", node("Clip", "x", "", "hi"), (11, 13), constants={"hi": np.float32(0.5)}),
    Case(
        "batchnorm",
        node("BatchNormalization", "x", "s", "h", "m", "v", epsilon=1e-3),
        (7, 9, 14, 15),
        constants=STATISTICS,
    ),
    Case("dropout", node("Dropout", "x"), (7, 10, 12, 13)),
    Case("dropout-ratio", node("Dropout", "x", "r", seed=3), (12, 13), constants={"r": np.float32(0.5)}),
    Case("softmax-last", node("Softmax", "x", axis=-1), (11, 13)),
    Case("softmax-default", node("Softmax", "x"), (7, 11, 13)),
    Case("softmax-middle", node("Softmax", "x", axis=2), (7, 11, 13)),
    Case("softmax-channels", node("Softmax", "x", axis=1), (7, 11, 13), {"x": (2, 5, 1, 1)}),
]
SHAPES = [
    *(Case(f"flatten-{a}", node("Flatten", "x", axis=a), (9, 13)) for a in (0, 1, 3, 4)),
    Case("flatten-negative", node("Flatten", "x", axis=-1), (11, 13)),
    Case("reshape", node("Reshape", "x", "s"), (7, 13, 21), constants={"s": ints(0, -1, 4)}),
    Case("squeeze-attribute", node("Squeeze", "x", axes=[1]), (7, 11), {"x": (2, 1, 3, 1)}),
    Case("squeeze-negative", node("Squeeze", "x", axes=[-1]), (11,), {"x": (2, 1, 3, 1)}),
    Case("squeeze-input", node("Squeeze", "x", "a"), (13, 21), {"x": (2, 1, 3, 1)}, {"a": ints(-1, 1)}),
    Case("squeeze-all", node("Squeeze", "x"), (11, 13), {"x": (2, 1, 3, 1)}),
    Case("unsqueeze-attribute", node("Unsqueeze", "x", axes=[0, 3]), (7, 11), {"x": (2, 3)}),
    Case("unsqueeze-input", node("Unsqueeze", "x", "a"), (13, 21), {"x": (2, 3)}, {"a": ints(-1, 0)}),
    Case("transpose", node("Transpose", "x", perm=[0, 2, 3, 1]), (7, 13, 21)),
    Case("transpose-default", node("Transpose", "x"), (7, 13)),
    Case("concat", node("Concat", "x", "z", "x", axis=-2), (11, 13), {"x": (2, 3, 4), "z": (2, 1, 4)}),
    Case("slice-attributes", node("Slice", "x", starts=[1, -3], ends=[100, -1], axes=[1, 3]), (7, 9)),
    Case(
        "slice-inputs",
        node("Slice", "x", "s", "e"),
        (10, 13),
        {"x": (5, 6)},
        {"s": ints(1, 0), "e": ints(-1, 4)},
    ),
    Case(
        "slice-steps",
        node("Slice", "x", "s", "e", "a", "t"),
        (10, 13),
        constants={"s": ints(0, -7), "e": ints(2**62, 8), "a": ints(-1, 2), "t": ints(2, 3)},
    ),
    Case("slice-empty", node("Slice", "x", "s", "e"), (13,), {"x": (5, 6)}, {"s": ints(3), "e": ints(1)}),
    Case("pad-attributes", node("Pad", "x", pads=[0, 1, 0, 2, 0, 2, 1, 0], value=1.5), (7, 10)),
    Case(
        "pad-inputs",
        node("Pad", "x", "p", "v"),
        (11, 13, 21),
        constants={"p": ints(0, 1, 0, 2, 0, 2, 1, 0), "v": np.float32(-2)},
    ),
    Case("pad-zero", node("Pad", "x", "p"), (11, 13), constants={"p": ints(0, 1, 0, 0, 0, 1, 0, 0)}),
    Case(
        "pad-axes",
        node("Pad", "x", "p", "", "a"),
        (18, 21),
        constants={"p": ints(1, 2, 3, 4), "a": ints(-1, 1)},
    ),
    Case("gather", node("Gather", "x", "i", axis=1), (11, 13), constants={"i": ints(3, 0, -1)}),
    Case("gather-scalar", node("Gather", "x", "i", axis=-1), (11, 13), constants={"i": np.int64(2)}),
]
CASES = [
    *(*CONVS, *GEMMS, *POOLS, *ELEMENTWISE, *SHAPES),
    *attention_cases.CASES,
    *volume_cases.CASES,
    *recurrent_cases.CASES,
    *composed_cases.CASES,
    *elementwise_cases.CASES,
    *movement_cases.CASES,
    *normalization_cases.CASES,
    *place_cases.CASES,
    *reduce_cases.CASES,
    *sampling_cases.CASES,
    *transposed_cases.CASES,
    *window_cases.CASES,
]


@pytest.mark.parametrize(
    ("case", "opset"), [pytest.param(c, o, id=f"{c.name}-{o}") for c in CASES for o in c.opsets]
)
def test_operator_means_what_onnxruntime_computes(case: Case, opset: int, tmp_path: Path) -> None:
    path = save(tiny_model([case.node], case.inputs, ["y"], case.constants, opset), tmp_path)
    assert_as_onnxruntime(import_model(path).graph, path)


RELATIONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor")
POSITIVE = ("Sqrt", "Log", "ReduceLogSum")


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("relation", RELATIONS)
def test_comparisons_and_booleans_decide_between_values(relation: str, opset: int, tmp_path: Path) -> None:
    logical = relation in ("And", "Or", "Xor")
    left, right = ("positive", "above") if logical else ("x", "z")
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["positive"]),
        helper.make_node("Less", ["z", "zero"], ["below"]),
        helper.make_node("Not", ["below"], ["above"]),
        helper.make_node(relation, [left, right], ["found"]),
        helper.make_node("Cast", ["found"], ["number"], to=1),
        helper.make_node("Where", ["above", "number", "x"], ["y"]),
    ]
    model = tiny_model(
        nodes, {"x": IMAGE, "z": (6, 1, 1)}, ["y"], {"zero": np.zeros((), np.float32)}, opset=opset
    )
    path = save(model, tmp_path)
    assert_as_onnxruntime(import_model(path).graph, path)


@pytest.mark.parametrize("function", POSITIVE)
def test_functions_of_positive_numbers(function: str, tmp_path: Path) -> None:
    nodes = [helper.make_node("Exp", ["x"], ["e"]), helper.make_node(function, ["e"], ["y"])]
    path = save(tiny_model(nodes, {"x": IMAGE}, ["y"]), tmp_path)
    assert_as_onnxruntime(import_model(path).graph, path)


@pytest.mark.parametrize("training", [False, True])
def test_mask_of_a_dropout_that_drops_nothing(training: bool, tmp_path: Path) -> None:
    node = helper.make_node("Dropout", ["x", "ratio", "training"], ["y", "mask"])
    kept = helper.make_node("Where", ["mask", "x", "y"], ["z"])
    constants = {"ratio": np.float32(0 if training else 0.5), "training": np.array(training)}
    path = save(tiny_model([node, kept], {"x": IMAGE}, ["y", "z"], constants), tmp_path)
    assert_as_onnxruntime(import_model(path, native=True).graph, path)


def test_every_import_function_is_tried() -> None:
    from qglow.importer.rules import supported_operators

    cases = [*CASES, *ranking_cases.CASES]
    tried = {case.node.op_type for case in cases} | {"Shape", "Constant", "ConstantOfShape", "Cast"}
    tried |= {operator for operator, *_ in GENERATED.values()} | {
        "IsInf",
        "IsNaN",
        "BitCast",
        "CumProd",
        "TensorScatter",
        "ConvInteger",
        "DynamicQuantizeLinear",
        "MatMulInteger",
        "OptionalHasElement",
        "MaxUnpool",  # of places that are constants: tests/unit/importer/test_computed_values.py
        "Unique",
        *BITS,
        *composed_cases.BOUNDED,
    }
    quantized = {node.op_type for model in QUANTIZED.values() for node in model.graph.node if not node.domain}
    assert tried | {*RELATIONS, "Not", *POSITIVE} | quantized == set(supported_operators())
