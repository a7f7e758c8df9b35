"""One ONNX node run by onnxruntime or by onnx.reference, to compare against."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from qglow.core.types import Array

OPSET = 21
IR_VERSION = 10


def node_model(op: str, inputs: list[Array], output_type: Any, **attributes: Any) -> onnx.ModelProto:
    """A model of one node with these inputs and one output of any shape."""
    names = [f"x{i}" for i in range(len(inputs))]
    node = helper.make_node(op, names, ["y"], **attributes)
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in zip(names, inputs, strict=True)
    ]
    element = helper.np_dtype_to_tensor_dtype(np.dtype(output_type))
    result = helper.make_tensor_value_info("y", element, None)
    graph = helper.make_graph([node], op, values, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = IR_VERSION
    return model


def ort(op: str, inputs: list[Array], output_type: Any = np.float32, **attributes: Any) -> Array:
    """What onnxruntime computes; all inputs but the first are constants of the model."""
    model = node_model(op, inputs, output_type, **attributes)
    for value in list(model.graph.input)[1:]:
        model.graph.initializer.append(numpy_helper.from_array(inputs[int(value.name[1:])], value.name))
        model.graph.input.remove(value)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.x64quantprecision", "1")  # no sums that saturate
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, {"x0": inputs[0]})[0]


def reference(op: str, inputs: list[Array], output_type: Any = np.float32, **attributes: Any) -> Array:
    """What onnx.reference computes."""
    model = node_model(op, inputs, output_type, **attributes)
    feeds = {f"x{i}": x for i, x in enumerate(inputs)}
    return ReferenceEvaluator(model).run(None, feeds)[0]


def relative_error(y: Array, expected: Array) -> float:
    """Largest difference relative to the largest magnitude of the expected values."""
    scale = max(float(np.max(np.abs(expected), initial=0.0)), 1e-30)
    return float(np.max(np.abs(y.astype(np.float64) - expected), initial=0.0)) / scale
