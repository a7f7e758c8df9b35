"""Convolutions whose weights are computed while the model runs, and affine steps of any rank."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import qglow
from tests.unit.importer.tiny import save, session, tiny_model

RNG = np.random.default_rng(8)


@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ((2, 3, 7, 6), (4, 3, 3, 2), {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
        ((1, 4, 6, 6), (4, 1, 3, 3), {"group": 4, "dilations": [2, 1]}),
        ((1, 6, 5, 5), (4, 3, 1, 1), {"group": 2}),
        ((2, 3, 9), (5, 3, 4), {"pads": [2, 1], "strides": [3]}),
    ],
)
@pytest.mark.parametrize("bias", [False, True])
def test_weights_that_are_an_input(
    tmp_path: Path, x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, object], bias: bool
) -> None:
    inputs = {"x": x, "w": w, **({"b": w[:1]} if bias else {})}
    path = save(
        tiny_model([helper.make_node("Conv", [*inputs], ["y"], **attributes)], inputs, ["y"]), tmp_path
    )
    feeds = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in inputs.items()}
    (expected,) = session(path).run(None, feeds)
    model = qglow.load_model(path, native=True)
    for found in (model.interpret(feeds), model.compile()(feeds)):
        np.testing.assert_allclose(found["y"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 5), (2, 4, 3, 2, 5)])
def test_an_affine_step_of_any_rank(tmp_path: Path, shape: tuple[int, ...]) -> None:
    constants = {name: RNG.uniform(0.5, 2, 4).astype(np.float32) for name in "smtv"}
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("BatchNormalization", ["r", "s", "t", "m", "v"], ["y"]),
    ]
    path = save(tiny_model(nodes, {"x": shape}, ["y"], constants), tmp_path)
    feeds = {"x": RNG.standard_normal(shape).astype(np.float32)}
    (expected,) = session(path).run(None, feeds)
    model = qglow.load_model(path)
    np.testing.assert_allclose(model.compile()(feeds)["y"], expected, rtol=1e-5, atol=1e-5)
    quantized = model.quantize(model.profile(feeds), repair=False)
    np.testing.assert_array_equal(quantized.compile()(feeds)["y"], quantized.interpret(feeds)["y"])
