"""Samples from what Python gives one by one: dicts, arrays and tensors, single samples or batches of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from qglow.core.errors import DataError
from qglow.core.memory import require_memory
from qglow.core.types import Array
from qglow.profiling.labels import Label, check_label_array, label_of
from qglow.profiling.samples import InputSpecs, Sample, are_inputs, check_counts
from qglow.profiling.sources import SampleSource, selected_forwards

_LABEL = "label"


class ItemSource(SampleSource):
    """Items of an iterable, each of which is a sample or a batch of samples.

    An item is a dict of arrays by input name (and, if known, "label"); or the arrays of all inputs in the
    model's order, with labels behind them if known; or the array of the only input. Arrays with an axis more
    than a sample has are batches, but those of just the shapes of inputs that hold several samples are one
    sample, unless there is a label for each row. Tensors of other libraries are arrays if NumPy can read
    them. `make` is called for every pass. Positions that are labelled `ignored`, or negative, do not count.
    """

    def __init__(
        self, name: str, make: Callable[[], Iterable[Any]], specs: InputSpecs, ignored: int | None = None
    ) -> None:
        self._name, self._make, self._specs, self._ignored = name, make, specs, ignored

    @property
    def size(self) -> int | None:
        """Unknown: only reading all items would tell."""
        return None

    def samples(self, selection: slice) -> Iterator[Sample]:
        """The selected samples; those between are made and dropped. Only forward slices."""
        made = (
            s
            for number, item in enumerate(_guarded(self._name, self._make))
            for s in self._samples(number, item)
        )
        return selected_forwards(made, selection, self._name)

    def _samples(self, number: int, item: object) -> Iterator[Sample]:
        key = f"{self._name}[{number}]"
        values, given = self._parts(item, key)
        arrays = {name: to_array(values[name], key) for name in self._specs}
        if self._is_one(arrays, given):
            yield Sample(key, arrays, self._labels(given, 1, key)[0])
            return
        batched = {n: a for n, a in arrays.items() if a.ndim - 1 in self._specs[n].ranks}
        check_counts(key, {name: array.shape for name, array in batched.items()}, self._specs)
        count = next((len(array) for array in batched.values()), 1)
        if count != 1 and len(batched) < len(arrays):
            alone = next(name for name in arrays if name not in batched)
            raise DataError(f"{key}: a batch of {count} samples, but '{alone}' has no axis for them")
        labels = self._labels(given, count, key)
        for row in range(count):
            inputs = {name: array[row] if name in batched else array for name, array in arrays.items()}
            yield Sample(key if count == 1 else f"{key}[{row}]", inputs, labels[row])

    def _is_one(self, arrays: Mapping[str, Array], given: object) -> bool:
        """Whether the arrays are whole inputs of a model whose first axes are not of samples."""
        if not are_inputs(arrays, self._specs):
            return False
        rows = len(next(iter(arrays.values())))
        return given is None or np.shape(to_array(given, _LABEL))[:1] != (rows,)

    def _parts(self, item: object, key: str) -> tuple[Mapping[str, object], object]:
        """Return the arrays of an item by input name, and its labels, None for none."""
        names = list(self._specs)
        if isinstance(item, Mapping):
            missing = [name for name in names if name not in item]
            if missing:
                raise DataError(f"{key}: has {sorted(map(str, item))}, the model takes {names}")
            return item, None if _LABEL in self._specs else item.get(_LABEL)
        if isinstance(item, Sequence) and item and all(hasattr(part, "__array__") for part in item):
            if len(item) not in (len(names), len(names) + 1):
                raise DataError(f"{key}: {len(item)} arrays, the model takes {len(names)}: {names}")
            given = item[len(names)] if len(item) > len(names) else None
            return dict(zip(names, item, strict=False)), given
        if len(names) != 1:
            found = type(item).__name__
            raise DataError(
                f"{key}: needs a dict of arrays by input name ({', '.join(names)}), found {found}"
            )
        return {names[0]: item}, None

    def _labels(self, given: object, count: int, key: str) -> list[Label | None]:
        if given is None:
            return [None] * count
        labels = to_array(given, key)
        if count == 1 and labels.size == 1:
            labels = labels.reshape(1)
        elif count == 1 and labels.ndim == 1:
            labels = labels[None]
        if labels.ndim not in (1, 2) or not labels.size or labels.dtype.kind not in "iu":
            shown = labels.item() if labels.ndim == 0 else f"of {labels.dtype} {list(labels.shape)}"
            raise DataError(f"{key}: label {shown} is not a class number, or a row of them")
        return [label_of(label, self._ignored) for label in check_label_array(labels, count, key)]


def to_array(value: object, what: str) -> Array:
    """Return an array, a tensor of another library, or nested lists of numbers as an array.

    Raises DataError, saying `what` it is, for anything else.
    """
    for step in ("detach", "cpu"):  # of tensors that gradients or another device hold
        value = getattr(value, step, lambda found=value: found)()
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{what}: {type(value).__name__} is no array: {error}") from error
    if array.dtype.kind in "OSUMmc":
        found = getattr(value, "dtype", type(value).__name__)
        raise DataError(f"{what}: needs an array of real numbers, found {found}")
    return array


def held_items(items: Iterator[object], most: int | None) -> list[object]:
    """Read an iterator, which gives its items once, at most `most` of them.

    Raises DataError where it is empty or fails, MemoryLimitError where its arrays take too much memory.
    """
    held: list[object] = []
    size = 0
    for item in _guarded("data", lambda: itertools.islice(items, most)):
        size += _byte_size(item)
        require_memory(size, f"the first {len(held) + 1} items of an iterator")
        held.append(item)
    if not held:
        raise DataError(
            "data: an iterator without samples; it gives them once, so make it anew, or give a list"
        )
    return held


def _byte_size(item: object) -> int:
    if isinstance(item, Mapping):
        return sum(map(_byte_size, item.values()))
    if isinstance(item, list | tuple):
        return sum(map(_byte_size, item))
    return int(getattr(item, "nbytes", 8))


def _guarded(name: str, make: Callable[[], Iterable[Any]]) -> Iterator[object]:
    """Yield the items; errors of the caller's code become DataError."""
    try:
        yield from make()
    except Exception as error:
        raise DataError(f"{name} raised {type(error).__name__}: {error}") from error
