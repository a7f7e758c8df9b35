"""Parts that bundles share, wherever they run."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import copy
from typing import Self

import numpy as np

from qglow.bundles.interface import BundleTensor, TensorRole
from qglow.codegen.memory import aligned_tensor
from qglow.core.errors import UsageError
from qglow.core.types import Array
from qglow.emulation.manifest import Manifest
from qglow.instructions.program import Program

_SIGN = np.uint8(0x80)


class Bundle(ABC):
    """The part of `Loaded` that all bundles share."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest, self._lock = manifest, threading.Lock()
        self._state = self._new_state({})

    @property
    def target(self) -> str:
        """Name of the target."""
        return self._manifest.target

    @property
    def activation_bias(self) -> int:
        """0: a bundle takes int8 as int8, whatever its code holds."""
        return 0

    @property
    def threads(self) -> int:
        """1: only the caller's thread."""
        return 1

    @property
    def arena_bytes(self) -> int:
        """Bytes of activations that a call needs."""
        return self._manifest.arena_bytes

    @property
    def weight_bytes(self) -> int:
        """Bytes of constants."""
        return self._manifest.weights_bytes

    @property
    def state(self) -> Mapping[str, Array]:
        """Arrays by name that are kept from call to call, as callers see them."""
        return self._state

    def reset(self, initial: Mapping[str, Array]) -> None:
        """Let states begin anew, with what `initial` has, else with what stands for 0."""
        with self._lock:
            for name, array in self._new_state(initial).items():
                self._state[name][...] = array

    def fork(self) -> Self:
        """The same code with a copy of the states."""
        forked = copy(self)
        with self._lock:
            forked._state = self._new_state(self._state)
        return forked

    def _new_state(self, initial: Mapping[str, Array]) -> dict[str, Array]:
        made = {}
        for tensor in self._manifest.of_role(TensorRole.STATE):
            made[tensor.name] = aligned_tensor(tensor.kind).view(tensor.element.dtype)
            made[tensor.name][...] = initial.get(tensor.name, tensor.start)
        return made

    @abstractmethod
    def run(self, arrays: Mapping[str, Array]) -> None:
        """Run once, see `Loaded`."""

    @abstractmethod
    def bind(self, arrays: Mapping[str, Array]) -> Callable[[], None]:
        """A call on these arrays, see `Loaded`."""

    def activations(self, program: Program) -> dict[str, Array]:
        """Raise UsageError: a bundle tells of no activations."""
        raise UsageError("a bundle tells nothing of its activations; compare the model that it was made of")


def from_caller(tensor: BundleTensor, array: Array) -> bytes:
    """Bytes that C has of an array; an executable holds int8 that is uint8 to callers as int8."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return (data ^ _SIGN if is_flipped(tensor) else data).tobytes()


def to_caller(tensor: BundleTensor, content: bytes, array: Array) -> None:
    """Fill an array with bytes that C has: the inverse of `from_caller`."""
    data = np.frombuffer(content, np.uint8)
    array.reshape(-1).view(np.uint8)[:] = data ^ _SIGN if is_flipped(tensor) else data


def is_flipped(tensor: BundleTensor) -> bool:
    """Whether an executable holds other bytes than C: states are kept as C has them."""
    return tensor.is_shifted and tensor.role is not TensorRole.STATE
