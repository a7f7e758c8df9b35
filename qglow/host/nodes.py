"""ONNX nodes that onnxruntime executes, with the types of what goes in and comes out."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from qglow.core.errors import DataError
from qglow.core.text import Lexer, parse_type
from qglow.core.types import Array, TensorType
from qglow.host.session import HostFunction, prepare


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

    def prepared(self, threads: int = 1) -> HostFunction:
        """A function that runs the nodes on so many threads. Raises ModelError where they are refused.

        The function raises DataError where they refuse the inputs or give results of other types.
        """
        call, kinds, shapes = prepare(self.model, threads), self.kinds, self.result_types
        wanted = [(kind.shape, kind.element.dtype) for kind in shapes]

        def run(inputs: Sequence[Array]) -> list[Array]:
            try:
                found = call(inputs)
            except DataError as error:
                raise DataError(f"{kinds}: {error}") from error
            if [(array.shape, array.dtype) for array in found] != wanted:
                given = ", ".join(f"{array.dtype}{list(array.shape)}" for array in found)
                stated = ", ".join(map(str, shapes))
                raise DataError(f"{kinds} gave {given} for these inputs, not {stated}")
            return found

        return run

    def run(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """Run them on one thread. Raises ModelError and DataError as `prepared`."""
        return tuple(self.prepared()(inputs))
