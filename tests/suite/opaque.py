"""Nodes that onnxruntime executes, between values of every kind."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from qglow.core.types import ElementType, TensorType
from qglow.graph.ops.elementwise import Relu
from qglow.graph.ops.opaque import Opaque
from qglow.graph.ops.quantize import Dequantize
from qglow.graph.ops.shape import Cast, Transpose
from qglow.host.session import encode
from tests.suite.problem import Drawing, Maker, Problem


def two_largest(rows: int, columns: int) -> Opaque:
    """The two largest of every row, and their places."""
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("TopK", ["i0", "c0"], ["v0", "v1"])],
            "opaque",
            [helper.make_tensor_value_info("i0", TensorProto.FLOAT, [rows, columns])],
            [
                helper.make_tensor_value_info("v0", TensorProto.FLOAT, [rows, 2]),
                helper.make_tensor_value_info("v1", TensorProto.INT64, [rows, 2]),
            ],
            [helper.make_tensor("c0", TensorProto.INT64, [1], [2])],
        ),
        opset_imports=[helper.make_opsetid("", 11)],
        ir_version=8,
    )
    results = (f"float<{rows} x 2>", f"i64<{rows} x 2>")
    return Opaque("TopK", encode(model.SerializeToString()), (f"float<{rows} x {columns}>",), results)


def between_integers(random: np.random.Generator) -> Problem:
    drawing = Drawing("opaque", random)
    node, x = drawing.builder.node, drawing.integers(3, 9)
    real = node(Relu(), node(Dequantize(), x))
    values, places = drawing.builder.append(two_largest(3, 9), real).outputs
    whole = drawing.quantized(values)
    turned = node(Transpose((1, 0)), whole, output_types=[whole.type.with_shape((2, 3))])
    return drawing.finish(turned, node(Cast(ElementType.FLOAT), places), values)


def of_an_input(random: np.random.Generator) -> Problem:
    drawing = Drawing("opaque at both ends", random)
    drawing.inputs["x"] = random.normal(size=(5, 4)).astype(np.float32)
    x = drawing.builder.input("x", TensorType(ElementType.FLOAT, (5, 4)))
    again = drawing.builder.append(two_largest(5, 4), x).outputs
    return drawing.finish(*again, *drawing.builder.append(two_largest(5, 2), again[0]).outputs)


PROBLEMS: list[Maker] = [between_integers, of_an_input]
