"""A model whose shapes or parameters depend on values of its inputs, made one of static shapes for each call.

A model that is decided by the values of a call is imported with them as constants, and kept. So a call with
values that were seen before costs no import and no compilation; results depend on its inputs alone.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from qglow.core.errors import DataError, ModelError, UnboundError, UndecidedError, UsageError
from qglow.core.kept_imports import KeptImports
from qglow.core.model_place import ModelPlace
from qglow.core.types import Array, Dimension, Given, Shape, TensorType
from qglow.profiling.profile import Profile
from qglow.quantization.imported import quantize_imported
from qglow.recipe.schema import Recipe
from qglow.runtime.executable import check_input_names
from qglow.toolchain.loaded import LoadedModel, read_model

KEPT = 32
"""Specialisations of one model that are kept; the one that was used longest ago makes room for another."""

Reason = UndecidedError | UnboundError
_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Specialisation:
    """Shapes of the inputs, and values of those that decide; equal ones need one program.

    values: name, element type, shape and bytes. shapes: name and shape of each input, where dimensions are
    free.
    """

    values: tuple[tuple[str, str, Shape, bytes], ...]
    shapes: tuple[tuple[str, Shape], ...] = ()

    @staticmethod
    def of(inputs: Mapping[str, Array], names: Sequence[str]) -> Specialisation:
        """The specialisation for these inputs, whose shapes decide, and the values of the named ones."""
        arrays = [(name, np.asarray(inputs[name])) for name in names]
        values = tuple((name, str(a.dtype), a.shape, a.tobytes()) for name, a in arrays)
        shapes = tuple((name, np.shape(inputs[name])) for name in sorted(inputs))
        return Specialisation(values, shapes)


class Kept(Generic[_Made]):
    """Results for specialisations, at most `most` of them (default: KEPT). Threads may share it."""

    def __init__(self, most: int | None = None) -> None:
        self._most = KEPT if most is None else most
        self._made: OrderedDict[Specialisation, _Made] = OrderedDict()
        self._lock = threading.RLock()

    def get(self, key: Specialisation, make: Callable[[], _Made]) -> _Made:
        """Return the result for a key, made now where it is not there."""
        with self._lock:
            if key not in self._made:
                self._made[key] = make()
            self._made.move_to_end(key)
            while len(self._made) > self._most:
                self._made.popitem(last=False)
            return self._made[key]

    @property
    def values(self) -> tuple[_Made, ...]:
        """Results that are kept, in the order of their keys."""
        with self._lock:
            return tuple(self._made.values())

    @property
    def keys(self) -> tuple[Specialisation, ...]:
        """Keys of what is kept, the one that was used last at the end."""
        with self._lock:
            return tuple(self._made)


@dataclass(frozen=True)
class Decided:
    """A model for the shapes and values of one call, the inputs that it still has, and its key."""

    model: LoadedModel
    inputs: dict[str, Array]
    key: Specialisation


class UndecidedModel:
    """An ONNX model without shapes or values that decide what it is.

    reason: the error that names what is missing; None for a model that has a graph and can be had in other
    shapes too. names: of all inputs.
    """

    def __init__(self, source: Source, names: Sequence[str], digest: str, reason: Reason | None) -> None:
        self.reason = reason
        self.source = source
        self.names = tuple(names)
        self._digest = digest
        self._kept: Kept[LoadedModel | UndecidedError] = Kept()

    @staticmethod
    def of(loaded: LoadedModel) -> UndecidedModel:
        """The model in any shapes that its file and the caller leave open."""
        source = Source(loaded.place, loaded.given, loaded.passes, loaded.native, loaded.values)
        return UndecidedModel(source, tuple(loaded.inputs), loaded.sha256, None)

    def in_integers(self, recipe: Recipe) -> UndecidedModel:
        """The model whose graphs are int8 by the parameters that the file brings, if it brings any.

        recipe: what `quantize_imported` takes of one.
        """
        source = replace(self.source, integers=recipe)
        return UndecidedModel(source, self.names, self._digest, self.reason)

    @property
    def place(self) -> ModelPlace:
        """The ONNX file or its bytes."""
        return self.source.place

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Names and types of all inputs. Raises UnboundError where shapes are missing."""
        if isinstance(self.reason, UndecidedError):
            return dict(self.reason.types)
        raise self.refusal

    @property
    def refusal(self) -> Reason:
        """The error for what needs a graph."""
        assert self.reason is not None, "a model with a graph refuses nothing"
        return self.reason

    @property
    def dimensions(self) -> Mapping[str, Sequence[Dimension] | None]:
        """Dimensions of the inputs as the file declares them, or as they are bound where values decide."""
        if isinstance(self.reason, UnboundError):
            return self.reason.dimensions
        return {name: kind.shape for name, kind in self.inputs.items()}

    @property
    def given_shapes(self) -> dict[str, Shape]:
        """Shapes of inputs that the caller gave."""
        return {name: tuple(shape) for name, shape in self.source.shapes.items()}

    def note(self) -> str:
        """Sentence on what programs are compiled for."""
        if isinstance(self.reason, UndecidedError):
            names = ", ".join(f"'{name}'" for name in self.reason.inputs)
            return f"compiled anew for new values of {names}, which decide shapes or parameters"
        return "dimensions of the inputs are free: new shapes are compiled anew where no bound holds them"

    def at(self, shapes: Mapping[str, Sequence[int]], kept: KeptImports | None = None) -> LoadedModel:
        """The model with these shapes of inputs; `kept` as for `read_model`, which raises what this does."""
        return self._checked(self.source.read({**self.source.shapes, **shapes}, self.source.values, kept))

    def in_profile(self, profile: Profile) -> LoadedModel:
        """The model with the shapes of a profile, and its values where the caller gave none."""
        values = {**profile.model.values, **self.source.values}
        return self._checked(self.source.read({**self.source.shapes, **profile.shapes}, values))

    def decided(self, inputs: Mapping[str, Array]) -> Decided:
        """The model for these inputs.

        Raises DataError for missing or unknown inputs and shapes that do not fit, and what `read_model` does.
        """
        check_input_names(inputs, self.names)
        names = self.reason.inputs if isinstance(self.reason, UndecidedError) else ()
        while True:
            key = Specialisation.of(inputs, names)
            found = self._kept.get(key, functools.partial(self._read, names, inputs))
            if isinstance(found, LoadedModel):
                rest = {name: array for name, array in inputs.items() if name not in names}
                return Decided(found, rest, key)
            names = (*names, *found.inputs)

    def _read(self, names: Sequence[str], inputs: Mapping[str, Array]) -> LoadedModel | UndecidedError:
        """The model with the values of these inputs, or the error that names further ones."""
        values = {name: np.asarray(inputs[name]) for name in names}
        shapes = {name: self._shape(name, inputs[name]) for name in inputs if name not in values}
        try:
            model = self.source.read(shapes, {**self.source.values, **values})
        except UndecidedError as error:
            return error
        except UsageError as error:
            if names:
                raise
            raise DataError(str(error)) from error  # from shapes of the call's arrays
        return self._checked(model)

    def _shape(self, name: str, array: Array) -> Shape:
        """Return the shape of an input. Raises DataError where the caller has bound another one."""
        found, bound = np.shape(array), self.source.shapes.get(name)
        if bound is not None and tuple(bound) != found:
            raise DataError(f"input '{name}' has shape {found}, the model was loaded with {tuple(bound)}")
        return found

    def _checked(self, model: LoadedModel) -> LoadedModel:
        if model.sha256 != self._digest:
            raise ModelError(f"{self.place} has changed since it was loaded; load it again")
        return model


@dataclass(frozen=True)
class Source:
    """A model's file or bytes, and what the caller has said of it: see `read_model`.

    integers: the recipe for graphs in the integers that a quantized file brings; None for float ones.
    """

    place: ModelPlace
    shapes: Mapping[str, Sequence[int]]
    passes: str | None
    native: bool
    values: Mapping[str, Given]
    integers: Recipe | None = None

    def read(
        self,
        shapes: Mapping[str, Sequence[int]],
        values: Mapping[str, Given],
        kept: KeptImports | None = None,
    ) -> LoadedModel:
        """The model with these shapes and values."""
        model = read_model(self.place, shapes, self.passes, self.native, values, kept)
        if self.integers is None or not model.is_quantized:
            return model
        return replace(model, graph=quantize_imported(model.graph, self.integers).graph)


def open_model(
    place: ModelPlace,
    shapes: Mapping[str, Sequence[int]] | None = None,
    passes: str | None = None,
    native: bool = False,
    values: Mapping[str, Given] | None = None,
) -> LoadedModel | UndecidedModel:
    """Read a model like `read_model`; where shapes or values are missing, one that waits for them."""
    source = Source(place, dict(shapes or {}), passes, native, dict(values or {}))
    try:
        return source.read(source.shapes, source.values)
    except UndecidedError as error:
        return UndecidedModel(source, tuple(error.types), error.digest, error)
    except UnboundError as error:
        return UndecidedModel(source, tuple(error.dimensions), error.digest, error)
