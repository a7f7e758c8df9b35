"""ONNX nodes that onnxruntime executes, with the types of what goes in and comes out."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from qglow.core.errors import DataError
from qglow.core.text import Lexer, parse_type
from qglow.core.types import Array, TensorType
from qglow.host.session import prepare


@functools.lru_cache(4096)
def types_of(texts: tuple[str, ...]) -> tuple[TensorType, ...]:
    """Types of their texts. Raises TextError."""
    return tuple(parse_type(Lexer(text)) for text in texts)


@dataclass(frozen=True)
class HostedNodes:
    """One or several ONNX nodes as a small model.

    kinds: names of their operators, for people. model: the nodes as `host.session` takes them; its names are
    numbered, so that equal computations are equal texts. arguments, results: texts of the types of its
    inputs and outputs, none of them quantized.
    """

    kinds: str
    model: str
    arguments: tuple[str, ...]
    results: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raise ValueError for attributes of other types: they may come from an untrusted text."""
        texts = (self.kinds, self.model, *self.arguments, *self.results)
        if not all(isinstance(text, str) for text in texts) or not self.results:
            raise ValueError("kinds and model are texts, arguments and results lists of texts")

    @property
    def argument_types(self) -> tuple[TensorType, ...]:
        """Types of the inputs. Raises TextError."""
        return types_of(self.arguments)

    @property
    def result_types(self) -> tuple[TensorType, ...]:
        """Types of the outputs. Raises TextError."""
        return types_of(self.results)

    def run(self, inputs: Sequence[Array], threads: int = 1) -> tuple[Array, ...]:
        """Run them. Raises DataError where they refuse the inputs or give results of other types."""
        try:
            found = prepare(self.model, threads)(inputs)
        except DataError as error:
            raise DataError(f"{self.kinds}: {error}") from error
        for array, kind in zip(found, self.result_types, strict=True):
            if array.shape != kind.shape or array.dtype != kind.element.dtype:
                given = f"{array.dtype}{list(array.shape)}"
                raise DataError(f"{self.kinds} gave {given} for these inputs, not {kind}")
        return tuple(found)
