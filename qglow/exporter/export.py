"""View of one node of the graph for its export function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from qglow.exporter.proto import ProtoBuilder
from qglow.graph.graph import Node


class Export:
    """One node on its way out: where its inputs are found and what its result is to be called."""

    def __init__(self, builder: ProtoBuilder, node: Node, inputs: Sequence[str], output: str) -> None:
        self.builder = builder
        self.node = node
        self.inputs = list(inputs)
        self.output = output

    def emit(self, op_type: str, *more: str, **attributes: Any) -> None:
        """Write the ONNX node; `more` are inputs that the graph keeps as fields.

        `domain="..."` among the attributes stands for an operator that is not of ONNX's own domain.
        """
        self.builder.node(op_type, self.node.name, [*self.inputs, *more], self.output, **attributes)

    def integers(self, what: str, values: Sequence[int]) -> str:
        """An int64 constant."""
        return self.builder.constant(f"{self.node.name}__{what}", np.array(values, np.int64))

    def number(self, what: str, value: float) -> str:
        """A float32 scalar."""
        return self.builder.constant(f"{self.node.name}__{what}", np.array(value, np.float32))
