"""Data as Python has it: arrays, lists, generators, loaders and tensors of other libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qglow import load_model, save_profile
from qglow.core.errors import DataError, MemoryLimitError, UsageError
from qglow.core.types import Array, float_type
from qglow.toolchain.samples import open_samples

INPUTS = {"x": float_type(1, 2, 3)}
TWO = {"a": float_type(1, 2), "b": float_type(1, 3)}
X = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
LABELS = np.array([3, 1, 2, 0])


class Tensor:
    """A tensor as PyTorch has it: on a device, with a gradient, until it is asked for an array."""

    def __init__(self, array: Array, ready: int = 0) -> None:
        self._array, self._ready = array, ready

    def detach(self) -> Tensor:
        return Tensor(self._array, self._ready + 1)

    def cpu(self) -> Tensor:
        return Tensor(self._array, self._ready + 1)

    def __array__(self, *_: Any, **__: Any) -> Array:
        if self._ready < 2:
            raise RuntimeError("tensor requires grad, or is on a device")
        return self._array


class Loader:
    """A loader gives batches of inputs and labels, as often as it is asked."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for start in (0, 3):
            yield Tensor(X[start : start + 3]), Tensor(LABELS[start : start + 3])


def read(data: Any, **options: Any) -> tuple[Array, list[object]]:
    found = list(open_samples(data, INPUTS, **options))
    return np.stack([sample.inputs["x"] for sample in found]), [sample.label for sample in found]


FORMS: dict[str, Callable[[], Any]] = {
    "an array": lambda: X,
    "a dict of arrays": lambda: {"x": X},
    "a dict of tensors": lambda: {"x": Tensor(X)},
    "a tensor": lambda: Tensor(X),
    "a list of samples": lambda: list(X),
    "a list of nested lists": lambda: X.tolist(),
    "a list of batches": lambda: [X[:1], X[1:]],
    "a list of dicts": lambda: [{"x": x} for x in X],
    "a list of dicts of batches": lambda: [{"x": X[:3]}, {"x": X[3:]}],
    "a tuple of tensors in lists": lambda: tuple([Tensor(x)] for x in X),
    "a generator": lambda: (x for x in X),
    "a generator of dicts": lambda: ({"x": x[None]} for x in X),
    "a loader": Loader,
    "a function": lambda: lambda: iter(X),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_samples(form: str) -> None:
    found, labels = read(FORMS[form]())
    np.testing.assert_array_equal(found, X)
    assert labels == (LABELS.tolist() if form == "a loader" else [None] * 4)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_takes_selections(form: str) -> None:
    np.testing.assert_array_equal(read(FORMS[form](), select="1:4:2")[0], X[1:4:2])
    np.testing.assert_array_equal(read(FORMS[form](), samples=3)[0], X[:3])


@pytest.mark.parametrize("form", FORMS)
def test_samples_are_read_as_often_as_wanted(form: str) -> None:
    opened = open_samples(FORMS[form](), INPUTS)
    first, again = list(opened), list(opened)
    assert [sample.key for sample in first] == [sample.key for sample in again]
    assert len(first) == 4


def test_one_sample_is_an_array_without_the_axis_of_samples() -> None:
    np.testing.assert_array_equal(read(X[2])[0], X[2:3])


def test_an_endless_generator_is_read_as_far_as_needed() -> None:
    def endless() -> Iterator[Array]:
        while True:
            yield X[0]

    assert len(read(endless(), samples=5)[0]) == 5
    assert len(read(endless, select="2:4")[0]) == 2


def test_an_endless_generator_without_a_number_meets_the_limit_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("QGLOW_MAX_MEMORY", "8M")

    def endless() -> Iterator[Array]:
        while True:
            yield np.broadcast_to(X[0], (1 << 12, 2, 3))

    with pytest.raises(MemoryLimitError, match="items of an iterator"):
        read(endless())


@pytest.mark.parametrize("labels", [LABELS, LABELS.tolist(), np.stack([LABELS, LABELS], axis=1)])
def test_labels_of_batches(labels: Any) -> None:
    _, found = read([{"x": X, "label": labels}])
    np.testing.assert_array_equal(np.stack(found), labels)


def test_inputs_by_position_and_by_name() -> None:
    a, b = np.ones((2, 2), np.float32), np.zeros((2, 3), np.float32)
    for item in ({"a": a, "b": b, "label": [1, 2]}, (a, b, np.array([1, 2]))):
        found = list(open_samples([item], TWO))
        assert [sample.label for sample in found] == [1, 2]
        assert [sample.inputs["b"].shape for sample in found] == [(3,)] * 2


BAD: dict[str, tuple[Any, str]] = {
    "an empty list": ([], "no samples"),
    "an exhausted generator": (iter(()), "gives them once"),
    "words": (["cat", "dog"], "needs an array of real numbers, found str"),
    "uneven lists": ([[1.0, [2.0]]], "is no array"),
    "another name": ([{"y": X[0]}], r"has \['y'\], the model takes \['x'\]"),
    "another shape": ([X[0].T], r"\[3, 2\]"),
    "NaN": ([np.full((2, 3), np.nan, np.float32)], "NaN"),
    "too many arrays": ([(X[0], LABELS[:1], X[0])], "3 arrays, the model takes 1"),
    "labels that are no classes": ([(X, X)], "not a class number"),
    "fewer labels": ([(X, LABELS[:3])], "label"),
    "an error of the caller": ((1 // zero for zero in (0,)), "raised ZeroDivisionError"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_data_is_named(case: str) -> None:
    data, message = BAD[case]
    with pytest.raises(DataError, match=message) as caught:
        read(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([{"a": np.ones((2, 2), np.float32), "b": np.ones((3, 3), np.float32)}], "differ in their number"),
        ({"a": np.ones((2, 2), np.float32), "b": np.ones((3, 3), np.float32)}, "differ in their number"),
        ([{"a": np.ones((2, 2), np.float32), "b": np.ones(3, np.float32)}], "'b' has no axis for them"),
        ([np.ones((2, 2), np.float32)], r"needs a dict of arrays by input name \(a, b\)"),
        (np.ones((2, 2), np.float32), "give a dict of arrays by name"),
    ],
)
def test_bad_data_of_several_inputs_is_named(data: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(open_samples(data, TWO))


def test_what_is_no_data_is_refused() -> None:
    with pytest.raises(UsageError, match="data 7: give a path"):
        read(7)
    with pytest.raises(UsageError, match="labels are for"):
        read(X, labels="labels.npy")
    with pytest.raises(UsageError, match="at least 1"):
        read(X, samples=0)


def test_a_profile_of_an_array_is_that_of_a_dict(tmp_path: Path) -> None:
    model = load_model(Path(__file__).parents[3] / "calib_data" / "digits.onnx")
    name, kind = next(iter(model.inputs.items()))
    x = np.random.default_rng(0).normal(size=(12, *kind.shape[1:])).astype(np.float32)
    files = []
    for number, data in enumerate(({name: x}, x, list(x), (part for part in np.split(x, 3)))):
        files.append(tmp_path / str(number) / "p.yaml")
        files[-1].parent.mkdir()
        save_profile(model.profile(data), files[-1])
    assert len({file.read_bytes() for file in files}) == 1
