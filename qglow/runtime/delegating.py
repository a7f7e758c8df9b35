"""An executable that stands for others: one of them answers for what a single program has."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence

from qglow.core.types import Array, Shape, TensorType
from qglow.instructions.program import Program
from qglow.runtime.executable import Executable


class DelegatingExecutable(Executable):
    """Base of executables that run others. What they do not define themselves is that of `_one`."""

    def __init__(self) -> None:
        """Nothing: there is no program of its own."""

    @property
    @abstractmethod
    def _one(self) -> Executable:
        """The executable that answers. Raises the error that says why there is none."""

    @property
    def isa(self) -> str:
        """Name of the target that programs run on."""
        return self._one.isa

    @property
    def activation_bias(self) -> int:
        """Number that the target adds to int8 inputs and outputs that `bind` takes: 128 or 0."""
        return self._one.activation_bias

    @property
    def threads(self) -> int:
        """Number of threads that a call may run on."""
        return self._one.threads

    @property
    def program(self) -> Program:
        """The instruction program, as planned."""
        return self._one.program

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Names and types of the inputs, in the model's order."""
        return self._one.inputs

    @property
    def outputs(self) -> dict[str, TensorType]:
        """Names and types of the outputs, in the model's order."""
        return self._one.outputs

    @property
    def untyped_outputs(self) -> tuple[str, ...]:
        """Names of the outputs whose shapes data decides."""
        return self._one.untyped_outputs

    @property
    def programs(self) -> tuple[dict[str, Shape], ...]:
        """Shapes of the inputs of every program that is compiled."""
        return self._one.programs

    def prepare(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Compile ahead of a call with inputs of these shapes, see `Executable.prepare`."""
        self._one.prepare(shapes)

    @property
    def state(self) -> dict[str, Array]:
        """Tensors that the program keeps from call to call, live."""
        return self._one.state

    @property
    def arena_bytes(self) -> int:
        """Bytes of activations that a call needs."""
        return self._one.arena_bytes

    @property
    def weight_bytes(self) -> int:
        """Bytes of packed constants."""
        return self._one.weight_bytes

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Callable[[], None]:
        """Bind arrays to the program, see `Executable.bind`."""
        return self._one.bind(inputs, outputs)

    def activations(self) -> dict[str, Array]:
        """Copies of the activations that this thread's last call left, see `Executable.activations`."""
        return self._one.activations()
