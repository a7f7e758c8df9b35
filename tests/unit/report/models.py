"""Small models, data and programs for the reports to work on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

from qglow.core.types import Array, TensorType, float_type
from qglow.graph.graph import Graph, Value
from qglow.graph.interpreter import Interpreter
from qglow.profiling.samples import Sample
from qglow.report.runner import InterpretedGraph


def linear_model(classes: int = 3, features: int = 4, relu: bool = False) -> onnx.ModelProto:
    """logits[N, classes] = x[N, features] w + b, with a symbolic batch N."""
    generator = np.random.default_rng(1)
    w = generator.normal(size=(features, classes)).astype(np.float32)
    b = generator.normal(size=classes).astype(np.float32)
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["hidden" if relu else "logits"], "gemm")]
    if relu:
        nodes.append(helper.make_node("Relu", ["hidden"], ["logits"], "relu"))
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", features])],
        [helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["N", classes])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def samples(count: int, features: int = 4, classes: int | None = 3) -> list[Sample]:
    """Random samples of one input "x", labelled unless `classes` is None."""
    generator = np.random.default_rng(2)
    return [
        Sample(
            f"sample {index}",
            {"x": generator.normal(size=features).astype(np.float32)},
            None if classes is None else int(generator.integers(classes)),
        )
        for index in range(count)
    ]


@dataclass
class Function:
    """A runner with a batch: y = x * factor + offset as "logits"; counts its calls."""

    batch: int = 1
    factor: float = 1.0
    offset: Array | float = 0.0
    features: int = 4
    calls: list[int] = field(default_factory=list)

    @property
    def inputs(self) -> dict[str, TensorType]:
        return {"x": float_type(self.batch, self.features)}

    def __call__(self, inputs: Mapping[str, Array], /) -> dict[str, Array]:
        assert inputs["x"].shape == (self.batch, self.features)
        self.calls.append(len(inputs["x"]))
        return {"logits": (inputs["x"] * self.factor + self.offset).astype(np.float32)}


class Tapped(InterpretedGraph):
    """The interpreter as a program whose activations can be read, images as NHWC."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.graph = graph
        self.seen: dict[str, Array] = {}

    def __call__(self, inputs: Mapping[str, Array], /) -> dict[str, Array]:
        def tap(value: Value, array: Array) -> None:
            self.seen[value.name] = array.transpose(0, 2, 3, 1) if array.ndim == 4 else array

        return Interpreter(self.graph).run(inputs, tap)

    def activations(self) -> dict[str, Array]:
        return self.seen
