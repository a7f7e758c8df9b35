"""Small int8 graphs, and their integers as the interpreter and as onnxruntime have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from qglow.core.types import Array, ElementType, Quantization, TensorType, float_type
from qglow.exporter import export_qdq, quantized_value_names
from qglow.exporter.qdq import Activations
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Value
from qglow.graph.interpreter import Interpreter
from qglow.graph.operator import Operator
from qglow.graph.ops.quantize import Dequantize, Quantize
from tests.unit.importer.tiny import session

INPUT = Quantization.per_tensor(0.0313, -11)
OTHER = Quantization.per_tensor(0.0421, 7)


def int8(shape: Sequence[int], quantization: Quantization) -> TensorType:
    return TensorType(ElementType.INT8, tuple(shape), quantization)


class QuantizedGraph:
    """A graph whose float inputs are quantized first and whose result is dequantized last."""

    def __init__(self) -> None:
        self.builder = GraphBuilder("int8")
        self._rng = np.random.default_rng(3)

    def input(self, name: str, shape: Sequence[int], quantization: Quantization = INPUT) -> Value:
        value = self.builder.input(name, float_type(*shape))
        return self.apply(Quantize(), quantization, value)

    def apply(self, operator: Operator, quantization: Quantization | None, *inputs: Value | None) -> Value:
        """The operator's result as int8 of these parameters, or as float."""
        (kind,) = operator.infer([None if v is None else v.type for v in inputs])
        kind = kind if quantization is None else int8(kind.shape, quantization)
        return self.builder.node(operator, *inputs, output_types=[kind])

    def weight(self, shape: Sequence[int], axis: int | None) -> Value:
        data = self._rng.integers(-127, 128, tuple(shape)).astype(np.int8)
        if axis is None:
            return self.builder.constant("w", data, Quantization.per_tensor(0.013, 0))
        scales = self._rng.uniform(0.002, 0.02, shape[axis]).astype(np.float32)
        return self.builder.constant("w", data, Quantization.per_channel(scales, axis))

    def bias(self, channels: int) -> Value:
        return self.builder.constant("b", self._rng.integers(-9000, 9000, channels).astype(np.int32))

    def floats(self, name: str, *shape: int) -> Value:
        return self.builder.constant(name, self._rng.normal(0, 1, shape).astype(np.float32))

    def finish(self, result: Value) -> Graph:
        if result.type.is_quantized:
            result = self.builder.node(Dequantize(), result, name="y")
        return self.builder.finish(result)


def feeds_of(graph: Graph, seed: int = 5) -> dict[str, Array]:
    """Values that saturate now and then, with infinities."""
    rng = np.random.default_rng(seed)
    feeds = {v.name: rng.normal(0, 1.9, v.type.shape).astype(np.float32) for v in graph.inputs}
    for array in feeds.values():
        array.reshape(-1)[:2] = np.inf, -np.inf
    return feeds


def interpreted(graph: Graph, feeds: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """int8 values and outputs by name."""
    integers: dict[str, Array] = {}

    def tap(value: Value, array: Array) -> None:
        if value.type.is_quantized:
            integers[value.name] = array

    outputs = Interpreter(graph).run(feeds, tap)
    return integers, outputs


def in_onnxruntime(
    graph: Graph,
    feeds: Mapping[str, Array],
    activations: Activations = "uint8",
    optimize: bool = True,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """int8 values and outputs by name, of the exported model."""
    model = export_qdq(graph, activations=activations)
    names = quantized_value_names(graph)
    element = onnx.TensorProto.UINT8 if activations == "uint8" else onnx.TensorProto.INT8
    for name in names.values():
        model.graph.output.append(onnx.helper.make_tensor_value_info(name, element, None))
    runner = session(model, optimize)
    outputs = [v.name for v in graph.outputs]
    results = runner.run([*names.values(), *outputs], dict(feeds))
    offset = 128 if activations == "uint8" else 0
    integers = {
        name: (array.astype(np.int16) - offset).astype(np.int8)
        for name, array in zip(names, results[: len(names)], strict=True)
    }
    return integers, dict(zip(outputs, results[len(names) :], strict=True))


def optimized_operators(model: onnx.ModelProto, folder: Path) -> Counter[str]:
    """Operators that onnxruntime runs after its own optimisation."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node)


def largest_step(actual: Mapping[str, Array], expected: Mapping[str, Array]) -> int:
    """Largest difference of two sets of int8 tensors, in steps."""
    assert actual.keys() == expected.keys()
    steps = [np.abs(actual[n].astype(np.int16) - expected[n].astype(np.int16)) for n in expected]
    return max(int(s.max(initial=0)) for s in steps)
