"""The last ONNX nodes of a model, whose results have a shape that data decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from qglow.core.batch import as_taken
from qglow.core.errors import DataError
from qglow.core.types import Array, TensorType
from qglow.host.clock import in_host
from qglow.host.nodes import types_of
from qglow.host.session import encode, prepare


@dataclass(frozen=True)
class HostedTail:
    """One or several ONNX nodes as a small model, run after a program on what it takes and gives.

    kinds: names of their operators, for people. nodes: their names. model: the nodes as `host.session` takes
    them. operands: names of what it reads, in its order, each an input or an output of the program.
    arguments: texts of their types, none of them quantized. results: names of what it gives, in its order.
    outputs: names of all outputs of the whole, in order, each a result or an output of the program.
    """

    kinds: str
    nodes: tuple[str, ...]
    model: str = field(metadata={"text": False})
    operands: tuple[str, ...]
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    outputs: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raise ValueError for attributes of other types: they may come from an untrusted text."""
        lists = (self.nodes, self.operands, self.arguments, self.results, self.outputs)
        texts = (self.kinds, self.model, *(text for part in lists for text in part))
        if not all(isinstance(text, str) for text in texts) or not self.results:
            raise ValueError("kinds and model of a tail are texts, all others lists of texts")
        if len(self.operands) != len(self.arguments):
            raise ValueError(f"a tail has {len(self.operands)} operands and {len(self.arguments)} types")

    def to_plain(self) -> dict[str, object]:
        """All but the model as what JSON has."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "model"}

    @staticmethod
    def from_plain(plain: Mapping[str, Any], model: bytes) -> HostedTail:
        """The inverse of `to_plain`, with the model. Raises KeyError, TypeError or ValueError."""
        kinds, *lists = (plain[f.name] for f in fields(HostedTail) if f.name != "model")
        nodes, *others = (tuple(texts) for texts in lists)
        return HostedTail(kinds, nodes, encode(model), *others)

    @property
    def argument_types(self) -> tuple[TensorType, ...]:
        """Types of the operands. Raises TextError."""
        return types_of(self.arguments)

    def run(self, inputs: Sequence[Array], threads: int = 1) -> tuple[Array, ...]:
        """Run the nodes: outputs of the shapes that the inputs lead to.

        Raises ModelError where they are refused, and DataError where they refuse the inputs.
        """
        try:
            with in_host():
                return tuple(prepare(self.model, threads)(inputs))
        except DataError as error:
            raise DataError(f"{self.kinds}: {error}") from error

    def completed(
        self, taken: Mapping[str, Array], given: Mapping[str, Array], threads: int = 1
    ) -> dict[str, Array]:
        """All outputs of the whole, from what the program took and gave. Raises as `run`.

        One sample that the program took may have an axis that samples are stacked along.
        """
        operands = [
            given[name] if name in given else as_taken(np.asarray(taken[name]), kind.shape)
            for name, kind in zip(self.operands, self.argument_types, strict=True)
        ]
        found = dict(zip(self.results, self.run(operands, threads), strict=True))
        return {name: found[name] if name in found else given[name] for name in self.outputs}
