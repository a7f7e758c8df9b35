"""Loops and scans over a dimension that the file leaves free stay loops; others become their rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, helper

from qglow.core.types import Array
from qglow.graph.interpreter import Interpreter
from qglow.importer import import_model
from tests.unit.importer.test_structured import BOOL, FLOAT, INT64, START, body, kinds
from tests.unit.importer.tiny import save, session, tiny_model

WIDTH = 4
ROW = (FLOAT, [None, WIDTH])
RNG = np.random.default_rng(20)


def loop_constants(random: np.random.Generator, width: int = WIDTH) -> dict[str, Array]:
    """Constants of `keras_loop`, with drawn weights."""
    return {
        "w": (random.standard_normal((3, width)) * 0.5).astype(np.float32),
        "first": np.array([0]),
        "second": np.array([1]),
        "third": np.array([2]),
        "zero": np.array(0),
        "nought": np.float32(0),
        "width": np.array([width]),
    }


CONSTANTS = loop_constants(RNG)
node = helper.make_node


def cell(source: str = "rows") -> list[NodeProto]:
    """A layer of a slice of the sequence, added to what is carried."""
    return [
        node("Gather", [source, "n"], ["row"]),
        node("MatMul", ["row", "w"], ["p"]),
        node("Add", ["p", "s"], ["sum"]),
        node("Tanh", ["sum"], ["next"]),
    ]


def keras_loop(size: str = "second", width: int = WIDTH) -> list[NodeProto]:
    """A recurrent layer as tf2onnx writes it: a Loop as often as a Shape says, whose counters end it, too."""
    state = (FLOAT, [None, width])
    inner = body(
        [
            *cell(),
            node("Add", ["n", "one"], ["n2"]),
            node("Cast", ["n2"], ["reached"], to=FLOAT),
            node("Less", ["reached", "end"], ["on"]),
        ],
        {**START, "n": (INT64, []), "s": state},
        {"on": (BOOL, []), "n2": (INT64, []), "next": state, "row": (FLOAT, [None, 3])},
        {"one": np.array(1)},
    )
    until = {"first": "second", "second": "third"}[size]
    return [
        node("Transpose", ["x"], ["rows"], perm=[1, 0, 2]),
        node("Shape", ["x"], ["shape"]),
        node("Cast", ["shape"], ["sizes"], to=6),
        node("Slice", ["sizes", size, until, "first"], ["one_size"]),
        node("Squeeze", ["one_size", "first"], ["count"]),
        node("Cast", ["count"], ["end"], to=FLOAT),
        node("Less", ["nought", "end"], ["begins"]),
        node("Cast", ["count"], ["most"], to=INT64),
        node("Slice", ["shape", "first", "second", "first"], ["batch"]),
        node("Concat", ["batch", "width"], ["start_shape"], axis=0),
        node("Expand", ["nought", "start_shape"], ["start"]),
        node("Loop", ["most", "begins", "zero", "start"], ["n_end", "y", "seen"], name="cell", body=inner),
    ]


def scan() -> list[NodeProto]:
    inner = body(
        [node("MatMul", ["row", "w"], ["p"]), node("Add", ["p", "s"], ["sum"]), node("Tanh", ["sum"], ["t"])],
        {"s": ROW, "row": (FLOAT, [None, 3])},
        {"t": ROW},
    )
    axes = {"scan_input_axes": [1]}
    first = [n for n in keras_loop() if n.op_type != "Loop"]
    return [*first, node("Scan", ["start", "x"], ["y"], body=inner, num_scan_inputs=1, **axes)]


def imported(
    nodes: Sequence[NodeProto], declared: Sequence[int | str], shape: Sequence[int], folder: Path
) -> list[str]:
    """Operators with regions of a model in this shape, held to onnxruntime."""
    path = save(tiny_model(nodes, {"x": declared}, ["y"], CONSTANTS, opset=16), folder)
    graph = import_model(path, {"x": shape}, native=True).graph
    x = RNG.standard_normal(shape).astype(np.float32)
    (wanted,) = session(path).run(None, {"x": x})
    np.testing.assert_allclose(Interpreter(graph).run({"x": x})["y"], wanted, rtol=1e-5, atol=1e-6)
    return kinds(graph)


@pytest.mark.parametrize(
    ("declared", "expected"),
    [(["N", "T", 3], ["Loop"]), ([1, "T", 3], ["Loop"]), (["N", 6, 3], []), ([1, 6, 3], [])],
)
@pytest.mark.parametrize("nodes", [keras_loop, scan])
def test_a_free_length_keeps_the_loop(
    nodes: Callable[[], list[NodeProto]], declared: list[int | str], expected: list[str], tmp_path: Path
) -> None:
    assert imported(nodes(), declared, (1, 6, 3), tmp_path) == expected


def test_places_of_a_list_of_sizes_are_told_apart(tmp_path: Path) -> None:
    nodes = keras_loop("first")
    nodes[0] = node("Transpose", ["x"], ["rows"], perm=[0, 1, 2])
    assert imported(nodes, [3, "T", 3], (3, 3, 3), tmp_path) == []


def test_many_rounds_with_products_stay_a_loop(tmp_path: Path) -> None:
    assert imported(keras_loop(), [1, 60, 3], (1, 60, 3), tmp_path) == ["Loop"]


def test_what_constants_decide_alone_becomes_constants(tmp_path: Path) -> None:
    """Positions that a loop counts as far as the length goes."""
    inner = body(
        [node("Add", ["s", "s"], ["t"]), node("Identity", ["go"], ["on"])],
        {**START, "s": (FLOAT, [])},
        {"on": (BOOL, []), "t": (FLOAT, [])},
    )
    constants: Mapping[str, Array] = {"one": np.float32(1), "place": np.array(1)}
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "place"], ["most"]),
        node("Loop", ["most", "", "one"], ["power"], body=inner),
        node("Mul", ["x", "power"], ["y"]),
    ]
    path = save(tiny_model(nodes, {"x": [1, "T"]}, ["y"], constants, opset=16), tmp_path)
    graph = import_model(path, {"x": (1, 5)}, native=True).graph
    assert kinds(graph) == []
    np.testing.assert_array_equal(Interpreter(graph).run({"x": np.ones((1, 5), np.float32)})["y"], 32.0)
