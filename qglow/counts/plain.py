"""Counts and fillers as plain data for JSON, and back from a file that is not trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from qglow.core.types import Array, Shape
from qglow.counts.count import Count, Quotient, Term
from qglow.counts.fillers import (
    CountedPlaces,
    Filler,
    JoinedPlaces,
    LivePlaces,
    NewPlace,
    PlacesFromEnd,
    ShiftedPlaces,
)

_MOST = 2**40
"""More places than any tensor has along an axis."""
_MOST_AXES = 64
_MOST_WITHIN = 16
INTEGERS = ("int32", "int64")
"""Types of places."""


def count_to_plain(count: Count) -> list[Any]:
    """Plain data: the offset, then pairs of a term and its factor; a quotient is [count, divisor]."""
    return [count.offset, *([_term_to_plain(term), factor] for term, factor in count.terms)]


def _term_to_plain(term: Term) -> Any:
    return [count_to_plain(term.count), term.divisor] if isinstance(term, Quotient) else term


def count_from_plain(plain: Any, known: Mapping[str, object], within: int = _MOST_WITHIN) -> Count:
    """The inverse of `count_to_plain`. Raises TypeError and ValueError for what is no sum of `known`.

    within: most quotients that may be one within the other.
    """
    offset, *terms = plain
    read = ((_term_from_plain(term, known, within), _whole(factor)) for term, factor in terms)
    found = Count(tuple(read), _whole(offset))
    if not found.dimensions <= set(known):
        raise ValueError(f"{found} is no sum of the dimensions {', '.join(known)}")
    return found


def _term_from_plain(plain: Any, known: Mapping[str, object], within: int) -> Term:
    if isinstance(plain, str):
        return plain
    count, divisor = plain
    if _whole(divisor) < 1 or not within:
        raise ValueError(f"{divisor} divides no size")
    return Quotient(count_from_plain(count, known, within - 1), divisor)


def filler_to_plain(filler: Filler) -> dict[str, Any]:
    """Plain data of a filler of any kind."""
    plain: dict[str, Any] = {"kind": type(filler).__name__, "name": filler.name}
    if isinstance(filler, LivePlaces):
        return {**plain, "count": count_to_plain(filler.count), "bound": filler.bound, "rank": filler.rank}
    if isinstance(filler, JoinedPlaces):
        return {**plain, "parts": [[count_to_plain(count), bound] for count, bound in filler.parts]}
    if isinstance(filler, NewPlace):
        return {**plain, "count": count_to_plain(filler.count)}
    if isinstance(filler, ShiftedPlaces):
        first = count_to_plain(filler.first)
        return {**plain, "first": first, "at_bound": filler.at_bound, "bound": filler.bound}
    if isinstance(filler, CountedPlaces):
        numbers = {"first": count_to_plain(filler.first), "count": count_to_plain(filler.count)}
        step = count_to_plain(filler.step)
        return {**plain, **numbers, "bound": filler.bound, "dtype": filler.dtype, "step": step}
    if isinstance(filler, PlacesFromEnd):
        indices = np.asarray(filler.indices)
        numbers = {"shape": list(indices.shape), "indices": indices.reshape(-1).tolist()}
        return {**plain, **numbers, "dtype": str(indices.dtype), "count": count_to_plain(filler.count)}
    raise TypeError(f"{type(filler).__name__} has no plain form")


def filler_from_plain(plain: Mapping[str, Any], known: Mapping[str, object]) -> Filler:
    """The inverse of `filler_to_plain`.

    known: dimensions. Raises KeyError, TypeError and ValueError for what is none.
    """
    kind, name = plain["kind"], str(plain["name"])
    if kind == "JoinedPlaces":
        parts = [(count_from_plain(count, known), _size(bound)) for count, bound in plain["parts"]]
        return JoinedPlaces(name, tuple(parts))
    if kind == "ShiftedPlaces":
        first = count_from_plain(plain["first"], known)
        return ShiftedPlaces(name, first, _whole(plain["at_bound"]), _size(plain["bound"]))
    count = count_from_plain(plain["count"], known)
    if kind == "LivePlaces":
        rank = _whole(plain["rank"])
        if not 1 <= rank <= _MOST_AXES:
            raise ValueError(f"a tensor has {rank} axes")
        return LivePlaces(name, count, _size(plain["bound"]), rank)
    if kind == "NewPlace":
        return NewPlace(name, count)
    if kind in ("CountedPlaces", "PlacesFromEnd") and plain["dtype"] not in INTEGERS:
        raise ValueError(f"indices are {plain['dtype']}")
    if kind == "CountedPlaces":
        first, step = (count_from_plain(plain[key], known) for key in ("first", "step"))
        return CountedPlaces(name, first, count, _size(plain["bound"]), str(plain["dtype"]), step)
    if kind == "PlacesFromEnd":
        shape = tuple(_size(size) for size in plain["shape"])
        indices: Array = np.array([_whole(index) for index in plain["indices"]], plain["dtype"])
        return PlacesFromEnd(name, indices.reshape(shape), count)
    raise ValueError(f"no filler is of kind {kind!r}")


def filled_shape(filler: Filler) -> Shape:
    """Shape of what a filler fills, for all sizes."""
    if isinstance(filler, LivePlaces):
        return (filler.bound,) + (1,) * (filler.rank - 1)
    if isinstance(filler, JoinedPlaces):
        return (sum(bound for _, bound in filler.parts),)
    if isinstance(filler, ShiftedPlaces | CountedPlaces):
        return (filler.bound,)
    return (1,) if isinstance(filler, NewPlace) else np.shape(getattr(filler, "indices", ()))


def sizes_from_plain(plain: Mapping[str, Any], known: Sequence[str]) -> dict[str, int]:
    """A size for each dimension. Raises KeyError, TypeError and ValueError for others."""
    if set(plain) != set(known):
        raise ValueError(f"sizes of {', '.join(plain)} instead of {', '.join(known)}")
    return {name: _size(plain[name]) for name in known}


def _whole(number: object) -> int:
    if type(number) is not int or abs(number) > _MOST:
        raise ValueError(f"{str(number)[:40]} is no size")
    return number


def _size(number: object) -> int:
    if _whole(number) < 0:
        raise ValueError(f"{number} is no size")
    return _whole(number)
