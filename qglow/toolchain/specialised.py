"""An executable that compiles a model for the values that decide its shapes, once for each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

from qglow.core.errors import UsageError
from qglow.core.types import Array, TensorType
from qglow.instructions.program import Program
from qglow.runtime.cores import choose_threads
from qglow.runtime.executable import Executable
from qglow.targets.registry import select_target
from qglow.toolchain.compilation import compile_graph
from qglow.toolchain.options import CompileOptions
from qglow.toolchain.undecided import Kept, UndecidedModel


class SpecialisedExecutable(Executable):
    """Programs of one model, one for each set of values that decide its shapes.

    A call takes all inputs of the model, and compiles where such values are new. What a single program has,
    its outputs' types, sizes and activations, is an UndecidedError here: load the model with `values`.
    """

    def __init__(self, model: UndecidedModel, options: CompileOptions) -> None:
        """Raise UsageError for a target that the host cannot run."""
        self._model = model
        self._options = options
        self._target = select_target(options.isa)
        self._kept: Kept[Executable] = Kept()

    @property
    def isa(self) -> str:
        """Name of the target that programs run on."""
        return self._target.description.name

    @property
    def threads(self) -> int:
        """Number of threads that a call may run on; small programs use one."""
        return choose_threads(self._options.threads)

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Names and types of the inputs, in the model's order."""
        return self._model.inputs

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run once. Raises DataError for missing, unknown or misshapen inputs."""
        decided = self._model.decided(inputs)
        program = self._kept.get(decided.key, lambda: compile_graph(decided.model.graph, self._options))
        return program(decided.inputs)

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Callable[[], None]:
        """Raise UsageError: values that decide may change in the arrays that are bound."""
        names = ", ".join(f"'{name}'" for name in self._model.undecided.inputs)
        raise UsageError(f"bind needs a model that was loaded with the values of {names} (`values`)")

    @property
    def outputs(self) -> dict[str, TensorType]:
        """Raise UndecidedError."""
        self._refuse()

    @property
    def program(self) -> Program:
        """Raise UndecidedError."""
        self._refuse()

    @property
    def activation_bias(self) -> int:
        """Raise UndecidedError."""
        self._refuse()

    @property
    def state(self) -> dict[str, Array]:
        """Raise UndecidedError."""
        self._refuse()

    @property
    def arena_bytes(self) -> int:
        """Raise UndecidedError."""
        self._refuse()

    @property
    def weight_bytes(self) -> int:
        """Raise UndecidedError."""
        self._refuse()

    def activations(self) -> dict[str, Array]:
        """Raise UndecidedError."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise self._model.undecided
