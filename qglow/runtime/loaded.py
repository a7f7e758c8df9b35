"""Code of one target that is ready to run in this process; an executable calls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from qglow.core.types import Array
from qglow.instructions.program import Program


class Loaded(Protocol):
    """A program that is ready to run. Every kind of target that runs in this process has its own.

    Arrays that it takes are contiguous, of the exact shape, one for every input and output by name.
    int8 activations are bytes that hold `q + activation_bias` (`kernels.emit.operand.to_physical`);
    everything else is as the type says. Inputs are read and outputs are written in place. Arrays by the
    names of states take the place of the program's own.
    """

    @property
    def target(self) -> str:
        """Name of the target."""

    @property
    def activation_bias(self) -> int:
        """128 where int8 activations are held as uint8, else 0."""

    @property
    def threads(self) -> int:
        """The most threads that a call runs on."""

    @property
    def arena_bytes(self) -> int:
        """Bytes of activations that a call needs."""

    @property
    def weight_bytes(self) -> int:
        """Bytes of constants."""

    @property
    def state(self) -> Mapping[str, Array]:
        """Live arrays by name that the program keeps from call to call."""

    def run(self, arrays: Mapping[str, Array]) -> None:
        """Run once, in memory of the calling thread. Calls from several threads are safe."""

    def bind(self, arrays: Mapping[str, Array]) -> Callable[[], None]:
        """A call on these very arrays, which it keeps alive, with activations of its own."""

    def activations(self, program: Program) -> dict[str, Array]:
        """Copies of the activations that this thread's last `run` left, by name; int8 as int8.

        program: the planned program. Meaningful only where it was planned without reuse of memory.
        """
