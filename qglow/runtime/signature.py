"""Signature of a program: the inputs, outputs and state that it takes and gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qglow.core.text import Lexer, parse_type
from qglow.core.types import TensorType
from qglow.instructions.program import Buffer, Program


@dataclass(frozen=True)
class Signature:
    """Names and types, in the model's order. `state` tensors are kept from call to call."""

    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]
    state: Mapping[str, TensorType]

    @staticmethod
    def of(program: Program) -> Signature:
        """The signature of a program."""
        return Signature(*(_types(part) for part in (program.inputs(), program.outputs(), program.state())))

    def to_plain(self) -> dict[str, list[list[str]]]:
        """Plain data for JSON: pairs of name and type."""
        parts = {"inputs": self.inputs, "outputs": self.outputs, "state": self.state}
        return {part: [[name, str(kind)] for name, kind in types.items()] for part, types in parts.items()}

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> Signature:
        """The inverse of `to_plain`. Raises KeyError, TypeError, ValueError, TextError."""
        return Signature(*(_parsed(plain[part]) for part in ("inputs", "outputs", "state")))


def _types(buffers: Sequence[Buffer]) -> dict[str, TensorType]:
    return {buffer.name: buffer.type for buffer in buffers}


def _parsed(pairs: Sequence[Sequence[str]]) -> dict[str, TensorType]:
    return {str(name): parse_type(Lexer(text)) for name, text in pairs}
