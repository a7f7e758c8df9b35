"""Next tokens of a trained language model that each way to quantize it keeps."""

from __future__ import annotations

import numpy as np
import pytest

import qglow
from qglow import Model, QuantizedModel
from qglow.core.types import Array
from tests.zoo import zoo_model, zoo_path

CALIBRATED, JUDGED = slice(64), slice(64, 128)


@pytest.fixture(scope="module")
def model() -> Model:
    return qglow.load_model(zoo_model("llama_stories260k"), shapes={"tokens": (1, 128)})


@pytest.fixture(scope="module")
def stories() -> Array:
    with np.load(zoo_path("data/tinystories_tok512.npz")) as arrays:
        return np.asarray(arrays["tokens"][:, :-1], np.int64)


def answers(model: Model | QuantizedModel, stories: Array) -> Array:
    program = model.compile()
    return np.stack([np.argmax(program({"tokens": row[None]})["logits"], -1) for row in stories])


@pytest.fixture(scope="module")
def wanted(model: Model, stories: Array) -> Array:
    return answers(model, stories[JUDGED])


def kept(made: QuantizedModel, stories: Array, wanted: Array) -> float:
    """Next tokens that are those of the float model, in per cent."""
    return 100.0 * float(np.mean(answers(made, stories[JUDGED]) == wanted))


@pytest.mark.slow
@pytest.mark.parametrize(("effort", "least"), [("fast", 97.0), ("balanced", 98.5)])
def test_efforts_keep_next_tokens(
    model: Model, stories: Array, wanted: Array, effort: str, least: float
) -> None:
    samples = {"tokens": stories[CALIBRATED]}
    made = model.quantize(model.profile(samples), effort=effort, calibration_data=samples)
    assert kept(made, stories, wanted) >= least


@pytest.mark.slow
def test_rows_that_are_measured_keep_next_tokens(model: Model, stories: Array, wanted: Array) -> None:
    assert kept(model.quantize(dynamic=True), stories, wanted) >= 97.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("weights", "rounding", "least"), [("int8", "nearest", 98.8), ("int4:32", "gptq", 86.5)]
)
def test_integer_weights_keep_next_tokens(
    model: Model, stories: Array, wanted: Array, weights: str, rounding: str, least: float
) -> None:
    samples = None if rounding == "nearest" else {"tokens": stories[CALIBRATED]}
    made = model.quantize(weights=weights, rounding=rounding, calibration_data=samples)
    assert kept(made, stories, wanted) >= least
