"""Data sets of arrays: those of several runs and of one, and what is said about shapes that do not fit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qglow.core.errors import DataError
from qglow.profiling.datasets import open_data
from qglow.profiling.samples import InputSpec
from tests.unit.profiling.archives import FLOAT, ONE, TWO, ramp, save


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": ramp(2)}, r"holds \['y'\], the model takes \['x'\]"),
        ({"x": np.zeros((2, 3), np.float32)}, r"d.npz\[0\]: input 'x' has shape \[3\], the model takes"),
        ({"x": np.float32(0)}, r"has shape \[\], the model takes \[N, 2\]"),
        ({"x": np.zeros((4, 3, 2), np.float32)}, r"\[4, 3, 2\], .* state it: `shapes=x=3,2`"),
        ({"x": np.zeros((0, 2), np.float32)}, "no samples"),
        ({"x": np.array([[1, 2], [np.nan, 1]])}, r"d.npz\[1\]: input 'x' holds NaN"),
        ({"x": np.array([[1, 2], [3, -np.inf]])}, r"d.npz\[1\]: input 'x' holds an infinity"),
        ({"x": np.array([["a", "b"]])}, "is <U1, the model takes float32"),
        ({"x": ramp(2), "label": np.array([1, 2, 3])}, "not one class number for each of 2 samples"),
        ({"x": ramp(2), "labels": np.array(["a", "b"])}, "not one class number"),
        (
            {"x": ramp(2), "label": np.array([1, 2**63], np.uint64)},
            "label 9223372036854775808 is not a class",
        ),
        ({"x": np.array([object()])}, "cannot read"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        list(open_data(save(tmp_path, **arrays), ONE))
    assert str(caught.value).count("\n") <= 1


def test_samples_beside_a_batch_of_the_model_and_free_sizes_say_how_to_state_a_run(tmp_path: Path) -> None:
    specs = {"x": InputSpec((2, None, 3), FLOAT)}
    with pytest.raises(DataError, match="state the sizes of a run: `shapes=x=2,5,3`"):
        list(open_data(save(tmp_path, x=np.zeros((8, 5, 3), np.float32)), specs))
    other = "takes " + re.escape("[2, ?, 3]") + "$"
    with pytest.raises(DataError, match=other):
        list(open_data(save(tmp_path, x=np.zeros((8, 5, 4), np.float32)), specs))


STATEFUL = {
    "x": InputSpec((2,), FLOAT, (1, 2)),
    "state": InputSpec((3, None, 2), FLOAT),
    "rate": InputSpec((), np.dtype(np.int64)),
}


@pytest.mark.parametrize("options", [{}, {"samples": 1}])
def test_a_file_has_the_inputs_of_one_run(tmp_path: Path, options: dict[str, Any]) -> None:
    """The arrays are those that onnxruntime takes, without an axis of samples in front of each."""
    state = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    path = save(tmp_path, x=ramp(1), state=state, rate=np.int64(8000), label=np.int64(4))
    (sample,) = open_data(path, STATEFUL, **options)
    assert sample.inputs["x"].tolist() == [0, 1] and int(sample.inputs["rate"]) == 8000 and sample.label == 4
    np.testing.assert_array_equal(sample.inputs["state"], state)


def test_arrays_of_one_run_and_of_several_do_not_mix(tmp_path: Path) -> None:
    state = np.zeros((3, 2, 2), np.float32)
    with pytest.raises(DataError, match=r"'state' has shape \[3, 2, 2\], the model takes \[N, 3, \?, 2\]"):
        open_data(save(tmp_path, x=ramp(2), state=state, rate=np.int64(8000)), STATEFUL)


def test_one_array_without_an_axis_of_samples(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((3, 5, 2), np.float32))
    (sample,) = open_data(tmp_path / "x.npy", {"state": STATEFUL["state"]})
    assert sample.inputs["state"].shape == (3, 5, 2)


def test_number_of_samples_agrees_between_inputs(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="differ in their number of samples"):
        open_data(save(tmp_path, x=ramp(2), t=np.zeros(3, np.int64)), TWO)


def test_sizes_of_one_run_that_differ_are_stated(tmp_path: Path) -> None:
    """Such as one image and five texts, of which every image is compared with every text."""
    path = save(tmp_path, image=ramp(1), text=ramp(5))
    pairs = {name: InputSpec((2,), FLOAT, (1, 2)) for name in ("image", "text")}
    with pytest.raises(DataError, match=r"state them: `shapes=image=1,2` `shapes=text=5,2`"):
        open_data(path, pairs)
    stated = {"image": InputSpec((2,), FLOAT, (1, 2)), "text": InputSpec((5, 2), FLOAT)}
    (sample,) = open_data(path, stated)
    assert [sample.inputs[name].shape for name in stated] == [(2,), (5, 2)]


def test_fractions_do_not_become_integers(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="input 't' is float64, the model takes int64"):
        list(open_data(save(tmp_path, x=ramp(1), t=np.array([0.5])), TWO))
