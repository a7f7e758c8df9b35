"""Slots of a call's constants among the weights, so that others of equal sizes can take their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qglow.codegen.calls import Call
from qglow.core.types import Array
from qglow.instructions.program import Buffer, BufferKind
from qglow.kernels.emit.operand import to_physical


@dataclass(frozen=True)
class CallSlots:
    """A call's key, and the offsets in bytes of its packed constants and of the constants that it reads.

    bodies: those of the calls of programs inside of it, one behind the other.
    """

    key: tuple[object, ...]
    packed: tuple[int, ...]
    read: Mapping[Buffer, int]
    bodies: tuple[CallSlots, ...] = ()

    @staticmethod
    def of(call: Call, packed: Mapping[Call, Sequence[int]], constants: Mapping[Buffer, int]) -> CallSlots:
        """Slots of a call: offsets of all calls' packed constants, and of all constants that are read."""
        inner = tuple(CallSlots.of(each, packed, constants) for body in call.bodies for each in body)
        read = {buffer: constants[buffer] for buffer in _constants(call)}
        return CallSlots(call.key, tuple(packed[call]), read, inner)

    def fill(self, call: Call, weights: Array, bias: int) -> bool:
        """Write the constants of a call like this one into the weights, unless it takes other code.

        bias: what the target adds to int8. Returns whether it was done.
        """
        inner = [each for body in call.bodies for each in body]
        if call.key != self.key or len(inner) != len(self.bodies):
            return False
        for offset, array in zip(self.packed, call.arrays, strict=True):
            _write(weights, offset, array)
        for buffer in _constants(call):
            if buffer.data is not None:
                _write(weights, self.read[buffer], to_physical(buffer.data, buffer.type, bias))
        return all(slots.fill(each, weights, bias) for slots, each in zip(self.bodies, inner, strict=True))


def _constants(call: Call) -> Iterator[Buffer]:
    return (buffer.root for buffer in call.buffers if buffer.root.kind is BufferKind.CONSTANT)


def _write(weights: Array, offset: int, array: Array) -> None:
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    weights[offset : offset + data.size] = data
