"""Means over the tokens of a text, as a sum that is divided by a count, beyond the lengths that calibrate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import qglow
from qglow.core.types import Array
from tests.unit.importer.tiny import save, session, tiny_model

node = helper.make_node
WORDS, WIDTH, CLASSES = 200, 32, 6


MASKED = [
    node("Unsqueeze", ["real", "last"], ["beside"]),
    node("Mul", ["embedded", "beside"], ["masked"]),
    node("ReduceSum", ["masked", "tokens"], ["total"], keepdims=0),
]
MULTIPLIED = [
    node("Unsqueeze", ["real", "tokens"], ["row"]),
    node("MatMul", ["row", "embedded"], ["one"]),
    node("Squeeze", ["one", "tokens"], ["total"]),
]
"""Nodes that add up the tokens that a mask shows."""


@pytest.fixture(params=[MASKED, MULTIPLIED], ids=["masked", "multiplied"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Scores of the mean of embeddings of words [batch, tokens] that a mask counts."""
    random = np.random.default_rng(7)
    constants = {
        "table": random.normal(size=(WORDS, WIDTH)).astype(np.float32),
        "first": (random.normal(size=(WIDTH, WIDTH)) / 4).astype(np.float32),
        "second": (random.normal(size=(WIDTH, CLASSES)) / 4).astype(np.float32),
        "least": np.array(1e-9, np.float32),
        "last": np.array([-1]),
        "tokens": np.array([1]),
    }
    nodes = [
        node("Gather", ["table", "words"], ["embedded"]),
        node("Cast", ["mask"], ["real"], to=TensorProto.FLOAT),
        *request.param,
        node("ReduceSum", ["real", "tokens"], ["count"], keepdims=1),
        node("Clip", ["count", "least"], ["present"]),
        node("Div", ["total", "present"], ["mean"]),
        node("MatMul", ["mean", "first"], ["hidden"]),
        node("Relu", ["hidden"], ["positive"]),
        node("MatMul", ["positive", "second"], ["y"]),
    ]
    shapes = dict.fromkeys(("words", "mask"), ("batch", "length"))
    made = tiny_model(nodes, shapes, ["y"], constants)
    for value in made.graph.input:
        value.type.tensor_type.elem_type = TensorProto.INT64
    return save(made, tmp_path)


def text(random: np.random.Generator, length: int) -> dict[str, Array]:
    return {"words": random.integers(0, WORDS, (1, length)), "mask": np.ones((1, length), np.int64)}


def test_longer_texts_than_those_that_calibrate_keep_their_means(path: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(11)
    data = tmp_path / "texts"
    data.mkdir()
    for number in range(12):
        np.savez(data / f"{number:02}.npz", **text(random, int(random.integers(4, 17))))
    model = qglow.load_model(path)
    program = model.quantize(model.profile(data)).compile()
    given, power, error = session(path), 0.0, 0.0
    for _ in range(6):
        long = text(random, 100)
        wanted, found = given.run(["y"], long)[0], program(long)["y"]
        power, error = power + float((wanted**2).sum()), error + float(((found - wanted) ** 2).sum())
    assert 10 * np.log10(power / error) > 20
