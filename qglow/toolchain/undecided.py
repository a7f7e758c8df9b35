"""A model whose shapes or parameters depend on values of its inputs, made one of static shapes for each call.

A model that is decided by the values of a call is imported with them as constants, and kept. So a call with
values that were seen before costs no import and no compilation; results depend on its inputs alone.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from qglow.core.errors import DataError, ModelError, UndecidedError
from qglow.core.types import Array, Given, Shape, TensorType
from qglow.toolchain.loaded import LoadedModel, read_model

KEPT = 32
"""Specialisations of one model that are kept; the one that was used longest ago makes room for another."""

_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Specialisation:
    """Values of the inputs that decide; equal ones need one program.

    values: name, element type, shape and bytes of each.
    """

    values: tuple[tuple[str, str, Shape, bytes], ...]

    @staticmethod
    def of(names: Sequence[str], inputs: Mapping[str, Array]) -> Specialisation:
        """The specialisation for these inputs, of which the named ones decide."""
        arrays = [(name, np.asarray(inputs[name])) for name in names]
        return Specialisation(tuple((name, str(a.dtype), a.shape, a.tobytes()) for name, a in arrays))


class Kept(Generic[_Made]):
    """Results for specialisations, at most `KEPT` of them. Threads may share it."""

    def __init__(self) -> None:
        self._made: OrderedDict[Specialisation, _Made] = OrderedDict()
        self._lock = threading.RLock()

    def get(self, key: Specialisation, make: Callable[[], _Made]) -> _Made:
        """Return the result for a key, made now where it is not there."""
        with self._lock:
            if key not in self._made:
                self._made[key] = make()
            self._made.move_to_end(key)
            while len(self._made) > KEPT:
                self._made.popitem(last=False)
            return self._made[key]


@dataclass(frozen=True)
class Decided:
    """A model for the values of one call, the inputs that it still has, and its key."""

    model: LoadedModel
    inputs: dict[str, Array]
    key: Specialisation


class UndecidedModel:
    """An ONNX model without the values of inputs that decide; `undecided` is the error that names them."""

    def __init__(
        self,
        path: Path,
        shapes: Mapping[str, Sequence[int]] | None,
        passes: str | None,
        native: bool,
        values: Mapping[str, Given] | None,
        undecided: UndecidedError,
    ) -> None:
        self.path = path
        self.undecided = undecided
        self._shapes, self._values = dict(shapes or {}), dict(values or {})
        self._passes, self._native = passes, native
        self._kept: Kept[LoadedModel | UndecidedError] = Kept()

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Names and types of all inputs, those that decide among them."""
        return dict(self.undecided.types)

    def decided(self, inputs: Mapping[str, Array]) -> Decided:
        """The model for these inputs; shapes are those that the model was loaded with.

        Raises DataError for missing or unknown inputs, and what `read_model` does.
        """
        if set(inputs) != set(self.inputs):
            given, wanted = ", ".join(sorted(inputs)) or "none", ", ".join(self.inputs)
            raise DataError(f"inputs {given} given, {wanted} wanted")
        names = self.undecided.inputs
        while True:
            key = Specialisation.of(names, inputs)
            found = self._kept.get(key, functools.partial(self._read, names, inputs))
            if isinstance(found, LoadedModel):
                rest = {name: array for name, array in inputs.items() if name not in names}
                return Decided(found, rest, key)
            names = (*names, *found.inputs)

    def _read(self, names: Sequence[str], inputs: Mapping[str, Array]) -> LoadedModel | UndecidedError:
        """The model with the values of these inputs, or the error that names further ones."""
        values = {name: np.asarray(inputs[name]) for name in names}
        shapes = {name: shape for name, shape in self._shapes.items() if name not in values}
        try:
            model = read_model(self.path, shapes, self._passes, self._native, self._values | values)
        except UndecidedError as error:
            return error
        if model.sha256 != self.undecided.digest:
            raise ModelError(f"{self.path} has changed since it was loaded; load it again")
        return model


def open_model(
    path: Path,
    shapes: Mapping[str, Sequence[int]] | None = None,
    passes: str | None = None,
    native: bool = False,
    values: Mapping[str, Given] | None = None,
) -> LoadedModel | UndecidedModel:
    """Read a model like `read_model`; where values of inputs decide, one that waits for them."""
    try:
        return read_model(path, shapes, passes, native, values)
    except UndecidedError as error:
        return UndecidedModel(path, shapes, passes, native, values, error)
