"""Inputs of a bounded graph that its caller fills for the sizes of a call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qglow.core.types import Array
from qglow.counts.count import Count

_ONE = Count((), 1)


@dataclass(frozen=True, eq=False)
class Filler(ABC):
    """An input whose elements follow from the sizes of a call."""

    name: str

    @abstractmethod
    def fill(self, sizes: Mapping[str, int]) -> Array:
        """Elements for these sizes."""


@dataclass(frozen=True, eq=False)
class LivePlaces(Filler):
    """bool [bound, 1, ...]: whether a place is below the count. `rank`: number of axes."""

    count: Count
    bound: int
    rank: int

    def fill(self, sizes: Mapping[str, int]) -> Array:
        """Places below the count come first."""
        places = np.arange(self.bound) < self.count.at(sizes)
        return places.reshape((self.bound,) + (1,) * (self.rank - 1))


@dataclass(frozen=True, eq=False)
class JoinedPlaces(Filler):
    """int64 [sum of bounds]: places of the live parts of joined operands, then those of their rests."""

    parts: Sequence[tuple[Count, int]]

    def fill(self, sizes: Mapping[str, int]) -> Array:
        """A permutation."""
        live, rest, start = [], [], 0
        for count, bound in self.parts:
            places = np.arange(start, start + bound, dtype=np.int64)
            live.append(places[: count.at(sizes)])
            rest.append(places[count.at(sizes) :])
            start += bound
        return np.concatenate([*live, *rest])


@dataclass(frozen=True, eq=False)
class NewPlace(Filler):
    """int64 [1]: the place behind `count` others."""

    count: Count

    def fill(self, sizes: Mapping[str, int]) -> Array:
        """The count."""
        return np.array([self.count.at(sizes)], np.int64)


@dataclass(frozen=True, eq=False)
class ShiftedPlaces(Filler):
    """int64 [bound]: places behind which a part begins elsewhere than at the bound.

    first: the place that the part begins with. at_bound: the same for the largest sizes.
    """

    first: Count
    at_bound: int
    bound: int

    def fill(self, sizes: Mapping[str, int]) -> Array:
        """Every place, moved by how much the beginning has moved."""
        places = np.arange(self.bound, dtype=np.int64) + (self.first.at(sizes) - self.at_bound)
        return np.clip(places, 0, self.bound - 1)


@dataclass(frozen=True, eq=False)
class PlacesFromEnd(Filler):
    """Indices of which negative ones count from the end of an axis."""

    indices: Array
    count: Count

    def fill(self, sizes: Mapping[str, int]) -> Array:
        """Indices from the front."""
        return np.where(self.indices < 0, self.indices + self.count.at(sizes), self.indices)


@dataclass(frozen=True, eq=False)
class CountedPlaces(Filler):
    """Integers [bound]: `count` places from `first` on, each `step` further, then zeros.

    dtype: int32 or int64.
    """

    first: Count
    count: Count
    bound: int
    dtype: str
    step: Count = _ONE

    def fill(self, sizes: Mapping[str, int]) -> Array:
        """Ascending places."""
        filled: Array = np.zeros(self.bound, self.dtype)
        live = filled[: max(self.count.at(sizes), 0)]
        live[:] = self.first.at(sizes) + self.step.at(sizes) * np.arange(live.size)
        return filled
