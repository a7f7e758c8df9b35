"""Nodes and constants of an ONNX model that is being written."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from qglow.core.types import Array, ElementType
from qglow.exporter.proto import half_tensor

CONTRIBUTED = "com.microsoft"


class NodeWriter:
    """Nodes and constants in the order in which they are added."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self._stored: dict[str, TensorProto] = {}
        self._numbers: dict[tuple[int, ...] | int, str] = {}

    @property
    def constants(self) -> list[TensorProto]:
        """All constants."""
        return list(self._stored.values())

    def node(self, operator: str, *inputs: str, result: str = "", domain: str = "", **attributes: Any) -> str:
        """Name of the result of a new node."""
        name = f"{operator}_{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(operator, inputs, [result or name], name, domain=domain, **attributes)
        )
        return result or name

    def constant(self, array: Array | np.generic, name: str = "") -> str:
        """Name of a constant; one of this name that is there already is the same."""
        name = name or f"constant_{len(self._stored)}"
        if name not in self._stored:
            self._stored[name] = numpy_helper.from_array(np.asarray(array), name)
        return name

    def half(self, stored: Array, element: ElementType, name: str) -> str:
        """Name of the float32 numbers of a constant of 16 bits, which numerics.half has stored."""
        own = f"{name}.{element.name.lower()}"
        if own not in self._stored:
            self._stored[own] = half_tensor(own, stored, element)
            self.node("Cast", own, result=name, to=TensorProto.FLOAT)
        return name

    def integers(self, *numbers: int) -> str:
        """Name of a constant of one axis."""
        if numbers not in self._numbers:
            self._numbers[numbers] = self.constant(np.array(numbers, np.int64))
        return self._numbers[numbers]

    def number(self, number: int) -> str:
        """Name of an integer without axes."""
        if number not in self._numbers:
            self._numbers[number] = self.constant(np.array(number, np.int64))
        return self._numbers[number]
