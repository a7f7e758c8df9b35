"""Nodes that qglow passes on to onnxruntime, because it does not know their operator or a type of theirs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.types import Array, TensorType
from qglow.graph.operator import KeepFloat, Operator, OperatorTypeError, Policy, register, require
from qglow.graph.ops.rules import Arrays, Types
from qglow.host.nodes import HostedNodes


@register
@dataclass(frozen=True)
class Opaque(Operator):
    """One or several ONNX nodes that onnxruntime executes; `HostedNodes` describes the attributes."""

    name: ClassVar[str] = "Opaque"
    operands: ClassVar[tuple[str, ...]] = ("inputs*",)
    policy: ClassVar[Policy] = KeepFloat("it runs in onnxruntime")

    kinds: str
    model: str
    arguments: tuple[str, ...]
    results: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raise TypeError or ValueError for attributes that `HostedNodes` refuses."""
        assert self.hosted
        super().__post_init__()

    @property
    def hosted(self) -> HostedNodes:
        """The nodes, which can be run."""
        return HostedNodes(self.kinds, self.model, self.arguments, self.results)

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The types that were inferred at import, for the operands of that time."""
        wanted = self.hosted.argument_types
        require(len(inputs) == len(wanted), f"{len(inputs)} operands, the nodes take {len(wanted)}")
        for given, kind in zip(inputs, wanted, strict=True):
            if given != kind:
                raise OperatorTypeError(f"an operand is {given}, the nodes ({self.kinds}) take {kind}")
        return self.hosted.result_types

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Run the nodes in onnxruntime. Raises DataError for inputs that they refuse."""
        return self.hosted.run([array for array in inputs if array is not None])
