"""The last ONNX nodes of a model, whose results have a shape that data decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qglow.core.errors import DataError
from qglow.core.types import Array, TensorType
from qglow.host.nodes import types_of
from qglow.host.session import prepare


@dataclass(frozen=True)
class HostedTail:
    """One or several ONNX nodes as a small model, run after a program on what it gives.

    kinds: names of their operators, for people. model: the nodes as `host.session` takes them. arguments:
    texts of the types of its inputs, none of them quantized.
    """

    kinds: str
    model: str
    arguments: tuple[str, ...]

    @property
    def argument_types(self) -> tuple[TensorType, ...]:
        """Types of the inputs. Raises TextError."""
        return types_of(self.arguments)

    def run(self, inputs: Sequence[Array], threads: int = 1) -> tuple[Array, ...]:
        """Run the nodes: outputs of the shapes that the inputs lead to.

        Raises ModelError where they are refused, and DataError where they refuse the inputs.
        """
        try:
            return tuple(prepare(self.model, threads)(inputs))
        except DataError as error:
            raise DataError(f"{self.kinds}: {error}") from error
