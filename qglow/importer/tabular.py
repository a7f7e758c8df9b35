"""Import of operators that converters of other learning libraries write in front of a network.

https://github.com/onnx/onnx/blob/main/docs/Operators-ml.md Scaler
"""

from __future__ import annotations

import numpy as np

from qglow.graph.ops.elementwise import Mul, Sub
from qglow.importer.node import ImportNode, ImportRule


def import_scaler(node: ImportNode) -> None:
    """Import Scaler: (x - offset) * scale by one number for each element of the last axis, or for all."""
    x, features = node.value(0), node.kind().shape[-1:]
    node.require(x.type.is_float, f"its input is {x.type}; supported are floats")
    parts = {}
    for name in ("offset", "scale"):
        numbers = np.array(node.numbers(name), np.float32)
        node.require(numbers.shape in (features, (1,)), f"{name} has {numbers.size} numbers for x {x.type}")
        parts[name] = node.part_constant(name, numbers)
    node.emit(Mul(), node.emit(Sub(), x, parts["offset"], part="moved"), parts["scale"])


LEARNED: dict[str, ImportRule] = {"Scaler": ImportRule(import_scaler, newest=1)}
"""Operators of the domain ai.onnx.ml."""
