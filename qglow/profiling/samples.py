"""One sample, a batch of them, and the digest that says which data a profile was made from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from qglow.core.errors import DataError
from qglow.core.types import Array
from qglow.profiling.labels import Label


class InputSpec(NamedTuple):
    """Form of a model input: shape of one sample (no batch axis, None fits any size) and dtype.

    whole: shape of the input with its batch axis; None where a sample has all axes of the input. Samples of
    that shape are taken too: one with a batch axis of 1, or one whose model has no batch (core.batch).
    missing: whether numbers may be missing, as NaN: the model puts others in their places.
    """

    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]
    whole: tuple[int | None, ...] | None = None
    missing: bool = False

    @property
    def ranks(self) -> tuple[int, ...]:
        """Numbers of axes that a sample may have."""
        return tuple(len(shape) for shape in (self.shape, self.whole) if shape is not None)

    @property
    def is_ambiguous(self) -> bool:
        """Whether the first axis of the input is one of several samples, or not of samples: data tells."""
        return self.whole is not None and self.whole[0] != 1


InputSpecs = Mapping[str, InputSpec]


@dataclass(frozen=True, slots=True)
class Sample:
    """Arrays of one sample, without a batch axis, by input name. `key` says where it comes from.

    label: its class, or the classes of its positions, where they are known. whole: whether the arrays are
    inputs as a run takes them, of a model whose first axes are not of samples.
    """

    key: str
    inputs: Mapping[str, Array]
    label: Label | None = None
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples stacked along a new first axis; `keys` and `labels` have one element a sample.

    whole: there is one sample, and its arrays are as they were, without a new axis.
    """

    keys: tuple[str, ...]
    inputs: dict[str, Array]
    labels: tuple[Label | None, ...]
    whole: bool = False

    def __len__(self) -> int:
        return len(self.keys)

    def fills(self, size: int) -> bool:
        """Whether these are all samples that a run of `size` takes."""
        return self.whole or len(self) == size

    @property
    def stacked(self) -> dict[str, Array]:
        """Inputs with samples along the first axis, whatever the model takes."""
        return {name: array[None] for name, array in self.inputs.items()} if self.whole else self.inputs


def batches(samples: Iterable[Sample], size: int) -> Iterator[Batch]:
    """Consecutive samples stacked `size` at a time; the last batch may be smaller.

    A sample that is whole is a batch by itself.

    Raises DataError if samples of one batch differ in shape.
    """
    if size < 1:
        raise ValueError(f"a batch has at least one sample, not {size}")
    waiting: list[Sample] = []
    for sample in samples:
        if sample.whole:
            if waiting:
                yield _stack(waiting)
                waiting = []
            yield Batch((sample.key,), dict(sample.inputs), (sample.label,), whole=True)
            continue
        waiting.append(sample)
        if len(waiting) == size:
            yield _stack(waiting)
            waiting = []
    if waiting:
        yield _stack(waiting)


def _stack(samples: list[Sample]) -> Batch:
    inputs = {}
    for name, first in samples[0].inputs.items():
        for sample in samples:
            if sample.inputs[name].shape != first.shape:
                shape = list(sample.inputs[name].shape)
                raise DataError(
                    f"{sample.key}: input '{name}' is {shape}, but that of {samples[0].key} is "
                    f"{list(first.shape)}; samples of different shapes need `batch_size=1`"
                )
        inputs[name] = np.stack([sample.inputs[name] for sample in samples])
    return Batch(tuple(sample.key for sample in samples), inputs, tuple(sample.label for sample in samples))


def fit_sample(sample: Sample, specs: InputSpecs) -> Sample:
    """The sample in the model's input order and dtypes.

    Raises DataError, naming sample and input, for another shape, a lossy dtype, infinity, or NaN where the
    model does not say what it stands for.
    """
    whole = are_inputs(sample.inputs, specs)
    inputs = {name: _fit(sample, name, specs, whole) for name in specs}
    return Sample(sample.key, inputs, sample.label, whole)


def are_inputs(arrays: Mapping[str, Array], specs: InputSpecs) -> bool:
    """Whether arrays have the shapes of inputs whose first axes may hold several samples, or none."""
    ambiguous = any(spec.is_ambiguous for spec in specs.values())
    return ambiguous and all(_has_shape(arrays[name], spec.whole) for name, spec in specs.items())


def _has_shape(value: Array, wanted: tuple[int | None, ...] | None) -> bool:
    return wanted is not None and _fits(np.shape(value), wanted)


def _fits(found: Sequence[int], wanted: Sequence[int | None]) -> bool:
    return len(found) == len(wanted) and all(
        size is None or size == own for size, own in zip(wanted, found, strict=True)
    )


def _fit(sample: Sample, name: str, specs: InputSpecs, whole: bool) -> Array:
    value, spec = np.asarray(sample.inputs[name]), specs[name]
    where = f"{sample.key}: input '{name}'"
    if not spec.is_ambiguous and _has_shape(value, spec.whole):
        value = value[0]
    if not _has_shape(value, spec.whole if whole else spec.shape):
        taken = f"the model takes {forms_text(spec)}"
        shapes = {each: np.shape(array) for each, array in sample.inputs.items()}
        raise DataError(f"{where} has shape {list(value.shape)}, {taken}{remedy(shapes, specs)}")
    if not np.can_cast(value.dtype, spec.dtype, "same_kind") and not _is_whole(value, spec.dtype):
        raise DataError(f"{where} is {value.dtype}, the model takes {spec.dtype}")
    value = np.asarray(value, dtype=spec.dtype, order="C")
    refused = np.isinf if spec.missing else lambda array: ~np.isfinite(array)
    if spec.dtype.kind == "f" and refused(value).any():
        found = "NaN" if np.isnan(value).any() and not spec.missing else "an infinity"
        raise DataError(f"{where} holds {found}; leave the sample out (`select`) or repair the data")
    return value


def _is_whole(value: Array, dtype: np.dtype[Any]) -> bool:
    """Whether an integer type holds all of these numbers, as pixels of an image that is not normalized."""
    if dtype.kind not in "iu" or value.dtype.kind not in "iuf":
        return False
    ends = np.iinfo(dtype)
    return bool(np.all((value >= ends.min) & (value <= ends.max) & (value == np.rint(value))))


def shape_text(shape: tuple[int | None, ...], batch: bool = False) -> str:
    """A shape for people: [N, 3, ?, 224], where ? is any size."""
    sizes = ["?" if size is None else str(size) for size in shape]
    return "[" + ", ".join(["N", *sizes] if batch else sizes) + "]"


def remedy(found: Mapping[str, Sequence[int]], specs: InputSpecs) -> str:
    """Say what to do with samples that have one axis more in some inputs, which the model may have as well.

    A model may also have a batch of its own, beside free sizes. found: shapes of one sample by input.
    """
    batches = {name: _own_batch(found[name], spec.shape) for name, spec in specs.items()}
    if all(batches.values()):
        runs = " ".join(
            f"`shapes={name}={','.join(map(str, shape or ()))}`" for name, shape in batches.items()
        )
        return f"; if the first axis is one of samples, state the sizes of a run: {runs}"
    stated = [
        f"`shapes={name}={','.join(map(str, found[name]))}`"
        for name, spec in specs.items()
        if len(found[name]) == len(spec.shape) + 1 and _fits(found[name][1:], spec.shape)
    ]
    if not stated:
        return ""
    if len(stated) == 1:
        return f"; if the first axis of the input is not one of samples, state it: {stated[0]}"
    return f"; if the first axes of the inputs are not of samples, state them: {' '.join(stated)}"


def _own_batch(found: Sequence[int], wanted: Sequence[int | None]) -> tuple[int, ...] | None:
    """Shape of a run of as many samples as the model fixes, where these are others; else None."""
    first = wanted[0] if wanted and None in wanted[1:] else None
    if first is None or first <= 1 or not found or found[0] == first or not _fits(found[1:], wanted[1:]):
        return None
    return first, *found[1:]


def check_counts(where: str, arrays: Mapping[str, Sequence[int]], specs: InputSpecs) -> None:
    """Raise DataError, with what to do, where arrays of these shapes differ in their number of samples."""
    counts = {name: shape[0] if shape else 0 for name, shape in arrays.items()}
    if len(set(counts.values())) > 1:
        may_be_whole = all(name in arrays and spec.whole is not None for name, spec in specs.items())
        advice = remedy(arrays, specs) if may_be_whole else ""
        raise DataError(f"{where}: inputs differ in their number of samples: {counts}{advice}")


def forms_text(spec: InputSpec, batch: bool = False) -> str:
    """Shapes that samples of an input may have, for people."""
    text = shape_text(spec.shape, batch)
    if spec.whole is None or not spec.is_ambiguous:
        return text
    return f"{text}, or {shape_text(spec.whole, batch)} if its first axis is not one of samples"


def sample_digest(inputs: Mapping[str, Array]) -> bytes:
    """SHA-256 of one sample: names, dtypes, shapes and elements of its inputs, not its label."""
    hasher = hashlib.sha256()
    for name in sorted(inputs):
        value = np.asarray(inputs[name], order="C")
        little_endian = value.astype(value.dtype.newbyteorder("<"), copy=False)
        hasher.update(repr((name, little_endian.dtype.str, value.shape)).encode())
        hasher.update(little_endian.tobytes())
    return hasher.digest()


class DataDigest:
    """Sum modulo 2^256 of the SHA-256 of every sample: the same for any order, batch size or sharding."""

    def __init__(self, total: int = 0) -> None:
        self.total = total

    def add(self, inputs: Mapping[str, Array]) -> bytes:
        """Count in one sample, and return its `sample_digest`."""
        digest = sample_digest(inputs)
        self.total = (self.total + int.from_bytes(digest, "big")) % 2**256
        return digest

    def merge(self, other: DataDigest) -> None:
        """Count in the samples of another part of the data."""
        self.total = (self.total + other.total) % 2**256

    @property
    def hex(self) -> str:
        """64 hexadecimal digits."""
        return f"{self.total:064x}"

    @staticmethod
    def parse(text: str) -> DataDigest:
        """The digest that `hex` wrote. Raises ValueError for anything else."""
        if len(text) != 64:
            raise ValueError(f"a data digest has 64 hexadecimal digits, found {text!r}")
        return DataDigest(int(text, 16))
