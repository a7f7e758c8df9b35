"""A model whose loop and branch data decides, from its file to artefacts and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import qglow
from qglow.core.types import Array
from tests.unit.importer.test_structured import BOOL, FLOAT, INT64, START, body
from tests.unit.importer.tiny import save, session, tiny_model
from tests.zoo import wild_path

WIDTH = 24
RNG = np.random.default_rng(6)
ROW = (FLOAT, [1, WIDTH])
WEIGHTS = {
    name: (RNG.standard_normal((WIDTH, WIDTH)) * WIDTH**-0.5).astype(np.float32) for name in ("u", "v", "w")
}
node = helper.make_node


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A product, a cell that runs as often as an input says, and a branch by the sign of its result."""
    cell = body(
        [
            node("MatMul", ["s", "v"], ["p"]),
            node("Add", ["p", "k"], ["q"]),
            node("Tanh", ["q"], ["next"]),
        ],
        {**START, "s": ROW},
        {"go": (BOOL, []), "next": ROW},
    )
    positive = body([node("MatMul", ["last", "w"], ["a"])], {}, {"a": ROW})
    negative = body([node("Neg", ["last"], ["b"])], {}, {"b": ROW})
    nodes = [
        node("MatMul", ["x", "u"], ["k"], name="first"),
        node("ReduceSum", ["rounds"], ["count"], keepdims=0),
        node("Loop", ["count", "", "k"], ["last"], name="cell", body=cell),
        node("ReduceSum", ["last"], ["sum"], keepdims=0),
        node("Greater", ["sum", "nought"], ["which"]),
        node("If", ["which"], ["y"], name="sign", then_branch=positive, else_branch=negative),
    ]
    model = tiny_model(nodes, {"x": [1, WIDTH]}, ["y"], {**WEIGHTS, "nought": np.float32(0)}, opset=16)
    model.graph.input.append(helper.make_tensor_value_info("rounds", INT64, [1, 1]))
    return save(model, tmp_path)


@pytest.fixture
def data() -> dict[str, Array]:
    return {
        "x": RNG.standard_normal((16, WIDTH)).astype(np.float32),
        "rounds": RNG.integers(0, 9, (16, 1)),
    }


def sample(data: dict[str, Array], number: int) -> dict[str, Array]:
    return {name: array[number : number + 1] for name, array in data.items()}


def test_all_runtimes_agree_and_artefacts_come_back(
    path: Path, data: dict[str, Array], tmp_path: Path
) -> None:
    model = qglow.load_model(path, native=True)
    runtime = session(path)
    compiled = {isa: model.compile(isa=isa, threads=2) for isa in (None, "avx2", "reference")}
    for number in range(8):
        feeds = sample(data, number)
        (expected,) = runtime.run(None, feeds)
        for executable in compiled.values():
            np.testing.assert_allclose(executable(feeds)["y"], expected, rtol=1e-4, atol=1e-5)
    model.save_program(tmp_path / "float.qglow")
    again = qglow.load(tmp_path / "float.qglow")
    np.testing.assert_array_equal(again(feeds)["y"], compiled[None](feeds)["y"])
    quantized = model.quantize(model.profile(data))
    quantized.save(tmp_path / "q")
    loaded = qglow.load(tmp_path / "q" / "model.qglow")
    exported = session(tmp_path / "q" / "model.qdq.onnx")
    fast, slow = quantized.compile(), quantized.compile(isa="reference")
    for number in range(8):
        feeds = sample(data, number)
        result = fast(feeds)["y"]
        np.testing.assert_array_equal(loaded(feeds)["y"], result)
        np.testing.assert_allclose(slow(feeds)["y"], result, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(exported.run(None, feeds)[0], result, rtol=1e-3, atol=1e-3)


def test_a_long_sequence_in_a_model_of_others_is_a_loop_and_not_onnxruntime() -> None:
    path = wild_path("cw_decoder_old.onnx")
    with np.load(wild_path("cw_decoder_old.inputs.npz")) as stored:
        steps = np.concatenate([stored[f"{number}|inputs"] for number in range(4)], 1)
    x = np.tile(steps, (1, 4, 1, 1)).astype(np.float32)
    model = qglow.load_model(path, {"inputs": x.shape}, native=True)
    (expected,) = session(path).run(None, {"inputs": x})
    (found,) = model.compile()({"inputs": x}).values()
    np.testing.assert_allclose(found, expected, atol=1e-5)
