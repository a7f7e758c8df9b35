"""Parts that bundles share, wherever they run."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

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
        self._manifest = manifest
        self._state = {t.name: aligned_tensor(t.kind) for t in manifest.of_role(TensorRole.STATE)}
        self._lock = threading.Lock()

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
        """Arrays by name that are kept from call to call."""
        return self._state

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
    return (data ^ _SIGN if tensor.is_shifted else data).tobytes()


def to_caller(tensor: BundleTensor, content: bytes, array: Array) -> None:
    """Fill an array with bytes that C has: the inverse of `from_caller`."""
    data = np.frombuffer(content, np.uint8)
    array.reshape(-1).view(np.uint8)[:] = data ^ _SIGN if tensor.is_shifted else data
