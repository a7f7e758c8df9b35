"""Which outputs are scores of classes, and along which axis."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Value
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Mul
from qglow.graph.ops.functions import Sigmoid
from qglow.graph.ops.linear import Gemm, MatMul
from qglow.graph.ops.reduce import ReduceMean
from qglow.graph.ops.shape import Reshape, Transpose
from qglow.graph.ops.softmax import LogSoftmax, Softmax
from qglow.report.score_axes import ScoreAxis, score_axes

POSITIONS, CLASSES = 6, 5


def linear(b: GraphBuilder, hi: float = float("inf")) -> Value:
    """Results [positions, classes] of a linear layer."""
    w = b.constant("w", np.ones((8, CLASSES), np.float32))
    return b.node(Gemm(hi=hi), b.input("x", float_type(POSITIONS, 8)), w, name="rows")


def found(b: GraphBuilder, output: Value, open_axes: tuple[int, ...] = ()) -> ScoreAxis | None:
    return score_axes(b.finish(output), {output.name: open_axes}).get(output.name)


def test_scores_of_samples_lie_along_the_second_axis() -> None:
    b = GraphBuilder("g")
    assert found(b, linear(b)) == ScoreAxis(1)


def test_an_axis_of_run_time_size_is_not_one_of_classes() -> None:
    b = GraphBuilder("g")
    assert found(b, linear(b), (0,)) == ScoreAxis(1)
    b = GraphBuilder("g")
    assert found(b, linear(b), (1,)) is None


def convolved(b: GraphBuilder, channels: int) -> Value:
    """A convolution over 7 samples of time, with a sigmoid."""
    weights = b.constant("w", np.ones((channels, 4, 1, 1), np.float32))
    return b.node(Sigmoid(), b.node(Conv(), b.input("x", float_type(1, 4, 1, 7)), weights))


def test_an_axis_of_time_is_not_one_of_classes() -> None:
    b = GraphBuilder("g")
    assert found(b, b.node(Reshape((1, 7, 1)), convolved(b, 1))) is None
    b = GraphBuilder("g")
    pooled = b.node(ReduceMean(axes=(2, 3), keepdims=False), convolved(b, 5))
    assert found(b, pooled) == ScoreAxis(1)


@pytest.mark.parametrize("make", ["rows", "product"])
def test_positions_with_one_number_each_are_no_classes(make: str) -> None:
    """A detector of events along a signal: a number for each place, by a linear layer."""
    b = GraphBuilder("g")
    if make == "rows":
        w = b.constant("w", np.ones((8, 1), np.float32))
        rows = b.node(Gemm(), b.input("x", float_type(7, 8)), w)
        output = b.node(Sigmoid(), b.node(Reshape((1, 7, 1)), rows))
    else:
        w = b.constant("w", np.ones((1, 8, 1), np.float32))
        output = b.node(Sigmoid(), b.node(MatMul(), b.input("x", float_type(1, 7, 8)), w))
    assert found(b, output) is None


def test_classes_may_be_the_rows_of_a_product() -> None:
    b = GraphBuilder("g")
    w = b.constant("w", np.ones((1, CLASSES, 8), np.float32))
    assert found(b, b.node(MatMul(), w, b.input("x", float_type(1, 8, 1)))) == ScoreAxis(1)


@pytest.mark.parametrize(("normalized", "is_probable"), [(Softmax(-1), True), (LogSoftmax(2), False)])
def test_normalized_scores_at_positions(normalized: Softmax | LogSoftmax, is_probable: bool) -> None:
    b = GraphBuilder("g")
    scores = b.node(normalized, b.node(Reshape((1, POSITIONS, CLASSES)), linear(b)))
    assert found(b, b.node(Transpose((1, 0, 2)), scores), (0,)) == ScoreAxis(2, True, is_probable)


def test_a_moved_axis_of_classes_is_followed() -> None:
    b = GraphBuilder("g")
    scores = b.node(Softmax(-1), b.node(Reshape((1, POSITIONS, CLASSES)), linear(b)))
    assert found(b, b.node(Transpose((0, 2, 1)), scores)) == ScoreAxis(1, True, True)


def test_a_linear_layer_gives_scores_at_positions() -> None:
    b = GraphBuilder("g")
    assert found(b, b.node(Reshape((1, POSITIONS, CLASSES)), linear(b))) == ScoreAxis(2, True)


@pytest.mark.parametrize(
    "make",
    [
        lambda b: b.node(Reshape((1, POSITIONS, CLASSES)), linear(b, hi=6.0)),
        lambda b: b.node(Sigmoid(), b.node(Reshape((1, POSITIONS, CLASSES)), linear(b))),
        lambda b: b.node(Reshape((1, 1, POSITIONS, CLASSES)), linear(b)),
        lambda b: b.node(Reshape((1, POSITIONS * CLASSES, 1)), linear(b)),
        lambda b: b.node(
            Conv(), b.input("x", float_type(1, 4, 8, 8)), b.constant("w", np.ones((3, 4, 1, 1), np.float32))
        ),
    ],
    ids=["bounded", "sigmoid", "image", "merged", "convolution"],
)
def test_other_results_are_no_scores(make: object) -> None:
    b = GraphBuilder("g")
    assert callable(make)
    output = make(b)
    if output.type.shape[1] == POSITIONS * CLASSES:  # has the form of scores of samples
        assert found(b, output) == ScoreAxis(1)
    else:
        assert found(b, output) is None


def test_weights_of_attention_are_no_scores() -> None:
    b = GraphBuilder("g")
    queries, keys = b.input("q", float_type(2, 4, 8)), b.input("k", float_type(2, 8, 4))
    scaled = b.node(Mul(), b.node(MatMul(), queries, keys), b.constant("s", np.float32([0.3])))
    assert found(b, b.node(Softmax(-1), scaled)) is None
