"""An executable that compiles a model for the shapes and values that it is called with, once for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qglow.core.errors import ModelError, UndecidedError, UsageError
from qglow.core.types import Array, Dimension, Shape, TensorType
from qglow.graph.graph import Graph
from qglow.runtime.cores import choose_threads
from qglow.runtime.delegating import DelegatingExecutable
from qglow.runtime.executable import Executable, check_by_name, check_input_names
from qglow.targets.registry import select_target
from qglow.toolchain.bounded_program import BoundedExecutable
from qglow.toolchain.compilation import compile_whole
from qglow.toolchain.options import CompileOptions
from qglow.toolchain.undecided import Kept, Specialisation, UndecidedModel

_NO_VALUE = np.array(None, object)
"""Element of arrays of which only the shape matters: no input takes it as its value."""


@dataclass(frozen=True)
class Specialised:
    """A graph for the shapes and values of one call, the inputs that it still has, and its key."""

    graph: Graph
    inputs: Mapping[str, Array]
    key: Specialisation


class SpecialisedExecutable(DelegatingExecutable):
    """Programs of one model, one for each set of shapes, and of values that decide shapes.

    A call takes all inputs of the model, and compiles where such shapes or values are new. What a single
    program has, its outputs' types, sizes, activations and `bind`, is that of the `reference`, which may have
    programs for several shapes itself; where there is none, it is an error that says what is missing.
    """

    def __init__(
        self,
        specialise: Callable[[Mapping[str, Array]], Specialised],
        options: CompileOptions,
        reference: Executable | UsageError,
        types: Mapping[str, TensorType] | None = None,
        dimensions: Callable[[], dict[str, tuple[Dimension, ...]] | None] = lambda: None,
    ) -> None:
        """`types` of the inputs, where they are known without a reference.

        dimensions: gives those of the inputs where several shapes are compiled beside the reference's, or
        raises ModelError or ImportError where the model that tells them is missing. Raises UsageError for a
        target that the host cannot run.
        """
        self._specialise = specialise
        self._options = options
        self._target = select_target(options.isa)
        self._reference = reference
        self._types = types
        self._dimensions = dimensions
        self._kept: Kept[Executable] = Kept()

    @property
    def isa(self) -> str:
        """Name of the target that programs run on."""
        return self._target.description.name

    @property
    def threads(self) -> int:
        """Number of threads that a call may run on; small programs use one."""
        if isinstance(self._reference, Executable):
            return self._reference.threads
        return choose_threads(self._options.threads)

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Names and types of the inputs, in the model's order."""
        return self._one.inputs if self._types is None else dict(self._types)

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run once. Raises DataError for missing, unknown or misshapen inputs."""
        check_by_name(inputs)
        reference = self._reference
        if isinstance(reference, Executable) and _answers(reference, inputs):
            return reference(inputs)
        made = self._specialise(inputs)
        return self._program(made)(made.inputs)

    @property
    def untyped_outputs(self) -> tuple[str, ...]:
        """Names of the outputs whose shapes data decides, in any of the programs that are kept."""
        known = [*self._kept.values, *([self._reference] if isinstance(self._reference, Executable) else ())]
        return tuple(dict.fromkeys(name for program in known for name in program.untyped_outputs))

    @property
    def programs(self) -> tuple[dict[str, Shape], ...]:
        """Shapes of the inputs of every program that is kept: the reference, then the last used at the end.

        Inputs that decide by their values are there only with these shapes.
        """
        own = self._reference.programs if isinstance(self._reference, Executable) else ()
        return (*own, *(_shapes(key) for key in self._kept.keys))

    @property
    def free_dimensions(self) -> dict[str, tuple[Dimension, ...]] | None:
        """Dimensions of the inputs, where there are programs for several sizes or may be."""
        found = self._reference.free_dimensions if isinstance(self._reference, Executable) else None
        try:
            return found or self._dimensions()
        except (ModelError, ImportError):
            return None

    @property
    def fixed_because(self) -> str:
        """Reason why no dimensions are known to be free though they may be; "" where nothing is missing."""
        try:
            self._dimensions()
        except (ModelError, ImportError) as error:
            # What may follow, how to say where the model is, is not for every caller.
            return f"other shapes need the float model: {str(error).partition(';')[0]}"
        return ""

    def prepare(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Compile ahead of a call with inputs of these shapes.

        Raises DataError for shapes that no call may have, UndecidedError where values decide.
        """
        if isinstance(self._reference, UndecidedError):
            raise self._reference
        stand_ins = {name: np.broadcast_to(_NO_VALUE, tuple(shape)) for name, shape in shapes.items()}
        if isinstance(self._reference, Executable) and _answers(self._reference, stand_ins):
            check_input_names(shapes, self._reference.inputs)
            return
        self._program(self._specialise(stand_ins))

    def _program(self, made: Specialised) -> Executable:
        return self._kept.get(made.key, lambda: compile_whole(made.graph, self._options))

    def _line(self) -> str:
        return self._reference._line() if isinstance(self._reference, BoundedExecutable) else super()._line()

    def to_dict(self) -> dict[str, Any]:
        """Facts of the reference for JSON, and the shapes that it has programs for."""
        return (
            self._reference.to_dict() if isinstance(self._reference, BoundedExecutable) else super().to_dict()
        )

    @property
    def _one(self) -> Executable:
        """The reference. Raises the error that says why there is none."""
        if isinstance(self._reference, Executable):
            return self._reference
        raise self._reference


def specialised_executable(
    model: UndecidedModel, options: CompileOptions, reference: Executable | None = None
) -> SpecialisedExecutable:
    """Compile a float model for what it is called with. Raises UsageError for a target that is not here."""

    def specialise(inputs: Mapping[str, Array]) -> Specialised:
        decided = model.decided(inputs)
        return Specialised(decided.model.graph, decided.inputs, decided.key)

    types = model.inputs if isinstance(model.reason, UndecidedError) else None
    return SpecialisedExecutable(specialise, options, reference or model.refusal, types)


def fits(inputs: Mapping[str, Array], kinds: Mapping[str, TensorType]) -> bool:
    """Whether a program of these types judges the inputs: their names differ, or their shapes are its own.

    One sample may have the axis that samples are stacked along.
    """
    if set(inputs) != set(kinds):
        return True
    return all(np.shape(inputs[name]) in (kind.shape, (1, *kind.shape)) for name, kind in kinds.items())


def _answers(reference: Executable, inputs: Mapping[str, Array]) -> bool:
    """Whether the reference runs the inputs, or says what is wrong with them."""
    if isinstance(reference, BoundedExecutable):
        shapes = {name: np.shape(array) for name, array in inputs.items()}
        return set(shapes) != set(reference.inputs) or reference.takes(shapes)
    return fits(inputs, reference.inputs)


def _shapes(key: Specialisation) -> dict[str, Shape]:
    return {**{name: shape for name, _, shape, _ in key.values}, **dict(key.shapes)}
