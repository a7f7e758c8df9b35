"""LSTM as dynamic quantization writes it: results, integers in each step, and what runs in onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import qglow
from qglow.core.errors import UnsupportedError
from qglow.core.types import Array
from tests.unit.importer.tiny import save, session

INPUT, HIDDEN, BATCH, STEPS = 6, 8, 2, 5
COUNTS = {"forward": 1, "reverse": 1, "bidirectional": 2}
KINDS = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int32): TensorProto.INT32}


def constants(directions: int, form: str = "int8") -> dict[str, Array]:
    """Weights of 7 bits, which onnxruntime sums exactly on every processor. form: of the weights."""
    rng = np.random.default_rng(11)
    gates, per_gate = 4 * HIDDEN, "channels" in form
    shape = (directions, gates) if per_gate else (directions,)
    found: dict[str, Array] = {}
    for name, rows in (("w", INPUT), ("r", HIDDEN)):
        weights = rng.integers(-63, 64, (directions, rows, gates))
        zeros = np.zeros(shape, np.int8)
        found[name] = weights.astype(np.int8)
        if "uint8" in form:
            found[name], zeros = (weights + 60).clip(0, 127).astype(np.uint8), np.full(shape, 60, np.uint8)
        found |= {f"{name}s": rng.uniform(0.01, 0.03, shape).astype(np.float32), f"{name}z": zeros}
    found["b"] = rng.normal(0, 0.2, (directions, 2 * gates)).astype(np.float32)
    return found


def feeds(directions: int, steps: int = STEPS, batch: int = BATCH, states: bool = True) -> dict[str, Array]:
    rng = np.random.default_rng(steps)
    x = rng.normal(0, 1, (steps, batch, INPUT)).astype(np.float32)
    size = (directions, batch, HIDDEN)
    own = {name: rng.normal(0, scale, size).astype(np.float32) for name, scale in (("h", 0.4), ("c", 1.5))}
    return {"x": x} | (own if states else {})


def model(
    inputs: Mapping[str, Array],
    outputs: str = "y yh yc",
    form: str = "int8",
    names: str = "x w r b _ h c _ ws wz rs rz",
    free: bool = False,
    **attributes: object,
) -> onnx.ModelProto:
    direction = str(attributes.setdefault("direction", "forward"))
    own = constants(COUNTS[direction], form) | {"p": np.ones((1, 3 * HIDDEN), np.float32)}
    given = ["" if name == "_" or name in "hc" and name not in inputs else name for name in names.split()]
    results = [name.replace("_", "") for name in outputs.split()]
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        given,
        results,
        "lstm",
        domain="com.microsoft",
        hidden_size=HIDDEN,
        **attributes,
    )
    axes: dict[str, list[str | int]] = {
        "x": ["steps", "batch", INPUT],
        "h": [COUNTS[direction], "batch", HIDDEN],
        "c": [COUNTS[direction], "batch", HIDDEN],
    }
    taken = [
        helper.make_tensor_value_info(n, KINDS[a.dtype], axes[n] if free else a.shape)
        for n, a in inputs.items()
    ]
    given_back = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in results if n]
    stored = [numpy_helper.from_array(a, n) for n, a in own.items() if n in given]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "lstm", taken, given_back, stored)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def held(found: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    """A last bit of an activation may round a state to the next integer: less than a step of a sum."""
    for name, array in expected.items():
        assert found[name].shape == array.shape
        np.testing.assert_allclose(found[name], array, atol=0.01)


@pytest.mark.parametrize("direction", COUNTS)
@pytest.mark.parametrize("form", ["int8", "uint8", "int8 channels"])
@pytest.mark.parametrize("steps", [1, STEPS])
def test_results_are_those_of_onnxruntime(direction: str, form: str, steps: int, tmp_path: Path) -> None:
    inputs = feeds(COUNTS[direction], steps, states=form == "int8")
    path = save(model(inputs, form=form, direction=direction), tmp_path)
    runtime = session(path)
    expected = dict(zip(["y", "yh", "yc"], runtime.run(None, inputs), strict=True))
    loaded = qglow.load_model(path, native=True)
    held(loaded.interpret(inputs), expected)
    quantized = loaded.quantize()
    held(quantized.compile(threads=1)(inputs), expected)
    found, bits = quantized.interpret(inputs), quantized.compile(threads=1)(inputs)
    for name in expected:
        np.testing.assert_allclose(found[name], bits[name], atol=1e-5)


def test_products_are_of_integers_in_every_step(tmp_path: Path) -> None:
    inputs = feeds(2)
    report = qglow.load_model(save(model(inputs, direction="bidirectional"), tmp_path)).quantize().report
    assert report is not None
    products = [node.name for node in report.quantized if node.operator == "Gemm"]
    assert len(products) == 4 and sum("states.body/" in name for name in products) == 2
    assert not any(node.hosted for node in report.float_nodes)


@pytest.mark.parametrize("outputs", ["_ yh", "_ _ yc"])
def test_outputs_that_nobody_reads_may_be_left_out(outputs: str, tmp_path: Path) -> None:
    inputs = feeds(1)
    path = save(model(inputs, outputs), tmp_path)
    name = outputs.split()[-1]
    expected = session(path).run([name], inputs)[0]
    held(qglow.load_model(path, native=True).compile(threads=1)(inputs), {name: expected})


def test_sizes_stay_open_in_what_quantize_writes(tmp_path: Path) -> None:
    """The loop is a Scan there, which tells neither steps nor sequences."""
    path = save(model(feeds(2), direction="bidirectional", free=True), tmp_path)
    quantized = qglow.load_model(path, shapes={"x": (STEPS, BATCH, INPUT)}).quantize()
    exported = session(quantized.qdq_bytes())
    for steps, batch in ((STEPS, BATCH), (3, 1), (9, 4)):
        inputs = feeds(2, steps, batch)
        expected = dict(zip(["y", "yh", "yc"], session(path).run(None, inputs), strict=True))
        held(dict(zip(["y", "yh", "yc"], exported.run(None, inputs), strict=True)), expected)


@pytest.mark.parametrize(
    ("names", "attributes", "why"),
    [
        ("x w r b _ h c p ws wz rs rz", {}, "peepholes"),
        ("x w r b n h c _ ws wz rs rz", {}, "lengths of their own"),
        ("x w r b _ h c _ ws wz rs rz", {"clip": 0.5}, "clips"),
        ("x w r b _ h c _ ws wz rs rz", {"activations": ["Sigmoid", "Tanh", "Relu"]}, "sigmoid, tanh, relu"),
    ],
)
def test_other_cells_are_left_to_onnxruntime(
    names: str, attributes: dict[str, object], why: str, tmp_path: Path
) -> None:
    inputs = feeds(1) | ({"n": np.array([3, 5], np.int32)} if " n " in names else {})
    path = save(model(inputs, names=names, **attributes), tmp_path)
    with pytest.raises(UnsupportedError, match=why):
        qglow.load_model(path, native=True)
    expected = dict(zip(["y", "yh", "yc"], session(path).run(None, inputs), strict=True))
    held(qglow.load_model(path).compile(threads=1)(inputs), expected)
