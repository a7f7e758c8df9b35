"""Masks that a model turns round, 1 - mask over [batch, n], in programs for run-time sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import qglow
from qglow.core.errors import UnsupportedError
from qglow.core.types import Array
from tests.unit.importer.tiny import save, session

RANDOM = np.random.default_rng(8)
WIDTH = 16


def masked_attention(width: int | None = None) -> ModelProto:
    """x [batch, n, 16] and mask [batch, n] to attention, which adds (1 - mask) * -10000 to scores.

    width: of a fixed mask that is subtracted, in place of 1.
    """
    one = np.float32(1) if width is None else np.linspace(1, 2, width, dtype=np.float32)
    node = helper.make_node
    nodes = [
        node("Cast", ["mask"], ["real"], to=TensorProto.FLOAT),
        node("Sub", ["one", "real"], ["hidden"], name="turn"),
        node("Mul", ["hidden", "low"], ["added"]),
        node("Unsqueeze", ["added", "axis"], ["term"]),
        *(node("MatMul", ["x", f"w{name}"], [name]) for name in "qkv"),
        node("Transpose", ["k"], ["keys"], perm=[0, 2, 1]),
        node("MatMul", ["q", "keys"], ["scores"]),
        node("Add", ["scores", "term"], ["masked"]),
        node("Softmax", ["masked"], ["shares"], axis=-1),
        node("MatMul", ["shares", "v"], ["y"]),
    ]
    constants = {
        "one": one,
        "low": np.float32(-10000),
        "axis": np.array([1]),
        **{f"w{n}": (RANDOM.normal(size=(WIDTH, WIDTH)) / 4).astype(np.float32) for n in "qkv"},
    }
    info = helper.make_tensor_value_info
    size: int | str = "n" if width is None else width
    graph = helper.make_graph(
        nodes,
        "masked",
        [
            info("x", TensorProto.FLOAT, ["batch", size, WIDTH]),
            info("mask", TensorProto.INT64, ["batch", size]),
        ],
        [info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def inputs(batch: int, length: int) -> dict[str, Array]:
    known = np.arange(length) < RANDOM.integers(1, length + 1, (batch, 1))
    return {
        "x": RANDOM.normal(size=(batch, length, WIDTH)).astype(np.float32),
        "mask": known.astype(np.int64),
    }


def test_a_turned_mask_of_any_length_has_the_bits_of_its_own(tmp_path: Path) -> None:
    path = save(masked_attention(), tmp_path)
    program = qglow.load_model(path).compile(bounds={"batch": 1, "n": 48}, threads=1)
    for length in (1, 5, 17, 48):
        given = inputs(1, length)
        found = program(given)["y"]
        own = qglow.load_model(path, {"x": (1, length, WIDTH)}).compile(threads=1)(given)["y"]
        assert found.tobytes() == own.tobytes()
        np.testing.assert_allclose(found, session(path).run(None, given)[0], rtol=1e-4, atol=1e-5)


def test_batches_of_any_size_may_have_factors_of_their_own_along_a_fixed_length(tmp_path: Path) -> None:
    path = save(masked_attention(width=9), tmp_path)
    given = inputs(1, 9)
    expected = session(path).run(None, given)[0]
    found = qglow.load_model(path).compile(threads=1)(given)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_factors_for_each_place_are_still_refused_by_name(tmp_path: Path) -> None:
    model = masked_attention()
    table = numpy_helper.from_array(np.linspace(1, 2, 48, dtype=np.float32), "table")
    model.graph.initializer.append(table)
    model.graph.initializer.append(numpy_helper.from_array(np.array([0]), "zero"))
    nodes = [
        helper.make_node("Shape", ["mask"], ["size"], start=1, end=2),
        helper.make_node("Slice", ["table", "zero", "size"], ["factors"]),
        *model.graph.node,
    ]
    nodes[3].input[0] = "factors"
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    loaded = qglow.load_model(save(model, tmp_path))
    with pytest.raises(UnsupportedError, match="turn.*run-time size"):
        loaded.compile(bounds={"batch": 1, "n": 48})
