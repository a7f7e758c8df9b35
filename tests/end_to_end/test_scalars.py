"""Values without axes and outputs that are constants go through the whole toolchain."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, helper

import qglow
from tests.runtimes import PLAIN
from tests.unit.importer.tiny import save, session, tiny_model

MEAN = [
    helper.make_node("Gemm", ["x", "w"], ["g"]),
    helper.make_node("ReduceMean", ["g"], ["m"], keepdims=0),
]
TAILS: dict[str, list[NodeProto]] = {
    "constant": [
        helper.make_node("Add", ["m", "c"], ["k"]),
        helper.make_node("Mul", ["g", "k"], ["h"]),
        helper.make_node("Gemm", ["h", "w"], ["y"]),
    ],
    "alone": [helper.make_node("Mul", ["m", "m"], ["y"])],
    "function": [helper.make_node("Sigmoid", ["m"], ["y"])],
}


@pytest.mark.parametrize("io", ["float", "int8"])
@pytest.mark.parametrize("tail", TAILS)
def test_scalars_are_quantized_and_compiled(tail: str, io: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    constants = {"w": rng.standard_normal((4, 4)).astype(np.float32), "c": np.array(0.5, np.float32)}
    path = save(tiny_model([*MEAN, *TAILS[tail]], {"x": (1, 4)}, ["y"], constants), tmp_path)
    data = rng.standard_normal((16, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", data)
    model = qglow.load_model(path)
    feeds = {"x": data[:1]}
    (expected,) = session(path).run(None, feeds)
    np.testing.assert_allclose(model.compile()(feeds)["y"], expected, rtol=1e-5)
    quantized = model.quantize(model.profile(tmp_path / "x.npy"), io=io, repair=False)
    quantized.save(tmp_path / "q")
    inputs = feeds if io == "float" else {"x": np.array([[1, -2, 3, 4]], np.int8)}
    interpreted = quantized.interpret(inputs)["y"]
    for isa in (None, "reference"):
        found = quantized.compile(isa)(inputs)["y"]
        assert found.shape == expected.shape
        np.testing.assert_array_equal(found, interpreted)


def test_a_weight_that_is_an_output_too_stays_what_it_is(tmp_path: Path) -> None:
    w = np.eye(4, dtype=np.float32) * 3
    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"])]
    path = save(tiny_model(nodes, {"x": (1, 4)}, ["y", "w"], {"w": w}), tmp_path)
    np.save(tmp_path / "x.npy", np.random.default_rng(1).standard_normal((8, 4)).astype(np.float32))
    model = qglow.load_model(path)
    quantized = model.quantize(model.profile(tmp_path / "x.npy"), repair=False)
    found = quantized.compile()({"x": np.ones((1, 4), np.float32)})
    np.testing.assert_array_equal(found["w"], w)
    np.testing.assert_allclose(found["y"], np.full((1, 4), 3), rtol=0.05)


@pytest.mark.parametrize("isa", [None, PLAIN])
@pytest.mark.parametrize("bias", [False, True])
def test_a_product_over_no_channels_is_its_bias(bias: bool, isa: str | None, tmp_path: Path) -> None:
    constants = {"w": np.zeros((0, 5), np.float32), "b": np.arange(5, dtype=np.float32)}
    node = helper.make_node("Gemm", ["x", "w", "b"] if bias else ["x", "w"], ["y"])
    used = {name: constants[name] for name in node.input if name in constants}
    model = qglow.load_model(save(tiny_model([node], {"x": (3, 0)}, ["y"], used), tmp_path))
    x = {"x": np.zeros((3, 0), np.float32)}
    wanted = np.tile(constants["b"] if bias else np.zeros(5, np.float32), (3, 1))
    np.testing.assert_array_equal(model.interpret(x)["y"], wanted)
    np.testing.assert_array_equal(model.compile(isa=isa)(x)["y"], wanted)
