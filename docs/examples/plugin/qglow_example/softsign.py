"""An operator of another package: Softsign, x / (1 + |x|), in float and as an int8 table.

    python docs/examples/plugin/qglow_example/softsign.py

registers it in this process and runs a model that uses it. An installed package registers it for every
process, by the entry point `softsign = qglow_example.softsign:declare` of the group `qglow.operators`;
see docs/how-to/add-an-operator.md.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import qglow
from qglow.core.types import Array
from qglow.exporter.export import Export
from qglow.exporter.operators import exports
from qglow.graph.graph import Node
from qglow.graph.operator import Policy, Table, register
from qglow.graph.ops.elementwise import Add, Div, Unary
from qglow.graph.ops.functions import Abs
from qglow.graph.ops.rules import Arrays, given
from qglow.graph.traits import Bounds
from qglow.importer.node import ImportNode
from qglow.importer.rules import imports
from qglow.lowering.decompose import Parts, decomposes


@dataclass(frozen=True)
class Softsign(Unary):
    """x / (1 + |x|)."""

    name: ClassVar[str] = "Softsign"
    policy: ClassVar[Policy] = Table()

    @property
    def result_range(self) -> Bounds:
        """Give the range that all results are in."""
        return -1.0, 1.0

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute it in float32."""
        x = given(inputs, 0)
        return (x / (np.float32(1) + np.abs(x)),)

    def reference64(self, x: Array) -> Array:
        """Compute it in float64, for the int8 table."""
        return np.asarray(x / (1.0 + np.abs(x)))


def read(node: ImportNode) -> None:
    """Import a node of ONNX."""
    node.emit(Softsign(), node.value(0))


def write(operator: Softsign, out: Export) -> None:
    """Export a node to ONNX."""
    out.emit("Softsign")


def decompose(operator: Softsign, parts: Parts) -> list[Node]:
    """Say what it is made of, so that every target can compile it."""
    x = parts.operand()
    one = parts.constant("one", np.ones((), np.float32))
    return parts.finish(Div(), x, parts.add("sum", Add(), parts.add("size", Abs(), x), one))


def declare() -> None:
    """Register the operator and its rules: what the entry point names."""
    register(Softsign)
    imports("Softsign", newest=22)(read)
    exports(Softsign)(write)
    decomposes(Softsign)(decompose)


def example(path: Path) -> None:
    """Write a model: Softsign between two convolutions."""
    random = np.random.default_rng(0)
    weights = {f"w{i}": random.normal(size=(4, c, 3, 3)).astype(np.float32) for i, c in ((0, 3), (1, 4))}
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w0"], ["a"]),
            helper.make_node("Softsign", ["a"], ["b"]),
            helper.make_node("Conv", ["b", "w1"], ["y"]),
        ],
        "softsign",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 4, 4])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)


def main() -> None:
    """Quantize the model and compare int8 with float."""
    declare()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "softsign.onnx"
        example(path)
        model = qglow.load_model(path)
        samples = np.random.default_rng(1).normal(size=(16, 3, 8, 8)).astype(np.float32)
        quantized = model.quantize(model.profile({"x": samples}))
    print(quantized.report.summary())
    inputs = {"x": samples[:1]}
    float32, int8 = model.interpret(inputs)["y"], quantized.compile()(inputs)["y"]
    difference = np.abs(int8 - float32).max()
    print(f"int8 differs from float by at most {difference:.3f}, of {np.abs(float32).max():.3f}")


if __name__ == "__main__":
    main()
