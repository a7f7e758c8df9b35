"""Exported models for all lengths of a signal whose frames lie behind convolutions with strides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from onnx import NodeProto, helper

import qglow
from qglow.core.types import Array
from tests.end_to_end.test_dynamic_shapes import decibels
from tests.unit.importer.tiny import save, session, tiny_model

WIDTH, LENGTH = 16, 48
FRAMES = [
    helper.make_node("Unsqueeze", ["x", "second"], ["signal"]),
    helper.make_node("Conv", ["signal", "c1"], ["wide"], strides=[3]),
    helper.make_node("Relu", ["wide"], ["positive"]),
    helper.make_node("Conv", ["positive", "c2"], ["narrow"], strides=[2]),
    helper.make_node("Transpose", ["narrow"], ["frames"], perm=[0, 2, 1]),
    helper.make_node("MatMul", ["frames", "wq"], ["product"]),
    helper.make_node("Add", ["product", "bq"], ["q"]),
]
"""A signal x [N, T] as frames [N, F, 16]; no multiple of T is F, and a pass fuses the last two nodes."""
SCORES = [
    helper.make_node("Transpose", ["q"], ["k"], perm=[0, 2, 1]),
    helper.make_node("MatMul", ["q", "k"], ["scores"]),
]
SEEN = [
    helper.make_node("Softmax", ["biased"], ["p"], axis=-1),
    helper.make_node("MatMul", ["p", "q"], ["seen"]),
    helper.make_node("MatMul", ["seen", "w1"], ["y"]),
]
PLACES = [
    helper.make_node("Shape", ["q"], ["sizes"]),
    helper.make_node("Gather", ["sizes", "one"], ["length"]),
    helper.make_node("Range", ["zero", "length", "one"], ["places"]),
]
"""Numbers of the frames."""


def constants() -> dict[str, Array]:
    random = np.random.default_rng(4)
    shapes = {"c1": (WIDTH, 1, 5), "c2": (WIDTH, WIDTH, 3), "wq": (WIDTH, WIDTH), "w1": (WIDTH, 10)}
    weights = {
        name: (random.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        for name, shape in shapes.items()
    }
    numbers = {"zero": 0, "one": 1, "least": -4, "most": 4}
    return {
        **weights,
        "bq": random.normal(size=WIDTH).astype(np.float32),
        **{name: np.array(number, np.int64) for name, number in numbers.items()},
        **{"second": np.array([1]), "last": np.array([-1])},
    }


def check_open(nodes: Sequence[NodeProto], stored: Mapping[str, Array], folder: Path) -> None:
    """Check that the export is for all lengths, and computes what the float model and the program do."""
    random = np.random.default_rng(6)
    model = qglow.load_model(save(tiny_model(nodes, {"x": ["N", "T"]}, ["y"], stored, opset=17), folder))
    data = [{"x": random.normal(size=(1, LENGTH)).astype(np.float32)} for _ in range(4)]
    quantized = model.quantize(model.profile(data))
    exported = session(quantized.qdq_bytes(), optimize=True)
    assert exported.get_inputs()[0].shape == ["N", "T"]
    program = quantized.compile(threads=1)
    for batch, length in ((1, 23), (3, 77), (1, LENGTH)):
        x = random.normal(size=(batch, length)).astype(np.float32)
        found = exported.run(None, {"x": x})[0]
        assert decibels(found, session(model.path).run(None, {"x": x})[0]) > 20
        # Sums of floats in another order may be on the other side of a half.
        np.testing.assert_allclose(found, program({"x": x})["y"], atol=0.01)


def test_a_bias_by_distance_follows_the_number_of_frames(tmp_path: Path) -> None:
    """No input tells the number: it is read from a tensor that the exported model has."""
    nodes = [
        *FRAMES,
        *PLACES,
        helper.make_node("Unsqueeze", ["places", "last"], ["column"]),
        helper.make_node("Sub", ["places", "column"], ["far"]),
        helper.make_node("Clip", ["far", "least", "most"], ["near"]),
        helper.make_node("Add", ["near", "most"], ["rows"]),
        helper.make_node("Gather", ["table", "rows"], ["bias"]),
        *SCORES,
        helper.make_node("Add", ["scores", "bias"], ["biased"]),
        *SEEN,
    ]
    table = np.random.default_rng(3).normal(size=9).astype(np.float32)
    check_open(nodes, {**constants(), "table": table}, tmp_path)


def test_sizes_of_what_only_sizes_decide_are_computed_as_well(tmp_path: Path) -> None:
    """Shape of a tensor of zeros, which no exported model has."""
    nodes = [
        *FRAMES,
        helper.make_node("Shape", ["q"], ["sizes"], start=0, end=2),
        helper.make_node("ConstantOfShape", ["sizes"], ["zeros"]),
        helper.make_node("Shape", ["zeros"], ["again"]),
        helper.make_node("Concat", ["again", "width"], ["whole"], axis=0),
        helper.make_node("Expand", ["token", "whole"], ["tokens"]),
        *SCORES,
        helper.make_node("Softmax", ["scores"], ["p"], axis=-1),
        helper.make_node("Concat", ["q", "tokens"], ["both"], axis=2),
        helper.make_node("MatMul", ["p", "both"], ["seen"]),
        helper.make_node("MatMul", ["seen", "w2"], ["y"]),
    ]
    random = np.random.default_rng(7)
    added = {
        "width": np.array([WIDTH]),
        "token": random.normal(size=(1, 1, WIDTH)).astype(np.float32),
        "w2": random.normal(size=(2 * WIDTH, 10)).astype(np.float32),
    }
    check_open(nodes, {**constants(), **added}, tmp_path)


def test_the_range_of_computed_positions_decides_their_scale(tmp_path: Path) -> None:
    """Positions go through a product, as integers, and the part that a length has is cut out."""
    nodes = [
        *FRAMES,
        *PLACES,
        helper.make_node("Cast", ["places"], ["real"], to=1),
        helper.make_node("Unsqueeze", ["real", "last"], ["column"]),
        helper.make_node("Mul", ["column", "step"], ["angles"]),
        helper.make_node("Concat", ["angles", "angles"], ["twice"], axis=0),
        helper.make_node("Concat", ["twice", "twice"], ["pairs"], axis=1),
        helper.make_node("MatMul", ["pairs", "wr"], ["encoded"]),
        helper.make_node("Transpose", ["encoded"], ["turned"], perm=[1, 0]),
        helper.make_node("Shape", ["q"], ["samples"], start=0, end=1),
        helper.make_node("Concat", ["samples", "each"], ["times"], axis=0),
        helper.make_node("Expand", ["turned", "times"], ["repeated"]),
        helper.make_node("MatMul", ["q", "repeated"], ["far"]),
        helper.make_node("Unsqueeze", ["length", "first"], ["end"]),
        helper.make_node("Slice", ["far", "first", "end", "last"], ["bias"], "cut"),
        *SCORES,
        helper.make_node("Add", ["scores", "bias"], ["biased"]),
        *SEEN,
    ]
    added = {
        "first": np.array([0]),
        "each": np.array([1, 1]),
        "step": np.array(0.01, np.float32),
        "wr": np.random.default_rng(8).normal(size=(2, WIDTH)).astype(np.float32),
    }
    check_open(nodes, {**constants(), **added}, tmp_path)


def test_frames_may_be_turned_around(tmp_path: Path) -> None:
    bounds = {"least": np.iinfo(np.int64).min, "minus": -1, "axis": 1}
    nodes = [
        *FRAMES,
        helper.make_node("Slice", ["q", "minus", "least", "axis", "minus"], ["back"]),
        helper.make_node("Add", ["q", "back"], ["both"]),
        helper.make_node("MatMul", ["both", "w1"], ["y"]),
    ]
    stored = {**constants(), **{name: np.array([bound]) for name, bound in bounds.items()}}
    check_open(nodes, stored, tmp_path)
