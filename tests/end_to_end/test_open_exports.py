"""One exported model for all shapes: what sizes decide is computed from the shapes of its inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import qglow
from qglow.cli.main import main
from qglow.core.errors import ModelError
from qglow.core.types import Array
from tests.end_to_end.test_dynamic_shapes import ATTENTION, CONSTANTS, DATA, WIDTH, decibels, sample
from tests.unit.importer.tiny import save, session, tiny_model


def test_no_single_exported_model_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["extent"], start=1, end=2),
        helper.make_node("Cast", ["extent"], ["count"], to=1),
        helper.make_node("Sqrt", ["count"], ["root"]),
        helper.make_node("Mul", ["h", "root"], ["y"]),
    ]
    nodes.insert(0, helper.make_node("MatMul", ["x", "w1"], ["h"]))
    model = tiny_model(nodes, {"x": ["N", "T", WIDTH]}, ["y"], {"w1": CONSTANTS["w1"]}, opset=17)
    path, out = save(model, tmp_path), tmp_path / "out"
    np.save(tmp_path / "x.npy", np.concatenate([sample(9) for _ in range(4)]))
    profile = tmp_path / "p.yaml"
    assert main(["profile", str(path), "--data", str(tmp_path / "x.npy"), "-o", str(profile)]) == 0
    assert main(["quantize", "--profile", str(profile), "--no-repair", "-o", str(out)]) == 0
    said = "model.qdq.onnx does not take all shapes that the model takes: weights of node 'MatMul_0'"
    assert said in capsys.readouterr().err.replace("\n", " ")
    assert said.split(":")[0] in (out / "report.md").read_text()
    quantized = qglow.load_quantized(out)
    with pytest.raises(qglow.UnsupportedError, match="weights of node 'MatMul_0' depend on shapes"):
        quantized.qdq_bytes()
    # The factor is folded into the weights, which would be those of another length.
    with pytest.raises(qglow.UnsupportedError, match="weights of node 'MatMul_0' depend on shapes"):
        quantized.compile(threads=1)({"x": sample(20)})
    assert session(out / "model.qdq.onnx").get_inputs()[0].shape == ["N", 9, WIDTH]
    assert session(quantized.qdq_bytes(bound_shapes=True)).get_inputs()[0].shape == [1, 9, WIDTH]


def test_an_export_stays_open_within_a_table_of_places(tmp_path: Path) -> None:
    """Sizes that the table has no places for are none of the model's, and no reason to bind it."""
    places = np.random.default_rng(6).normal(size=(1, 12)).astype(np.float32)
    nodes = [
        helper.make_node("Shape", ["x"], ["length"], start=1, end=2),
        helper.make_node("Slice", ["places", "first", "length", "second"], ["placed"]),
        helper.make_node("Shape", ["x"], ["sizes"], start=0, end=2),
        helper.make_node("Expand", ["placed", "sizes"], ["wide"]),
        helper.make_node("Unsqueeze", ["wide", "last"], ["column"]),
        helper.make_node("MatMul", ["x", "w1"], ["h"]),
        helper.make_node("Add", ["h", "column"], ["y"]),
    ]
    constants = {
        "w1": CONSTANTS["w1"],
        "places": places,
        **{"first": np.array([0]), "second": np.array([1]), "last": np.array([2])},
    }
    model = tiny_model(nodes, {"x": ["N", "T", WIDTH]}, ["y"], constants, opset=17)
    model = qglow.load_model(save(model, tmp_path))
    quantized = model.quantize(model.profile([{"x": sample(5)}] * 3), keep_float=["op:Add"])
    exported = session(quantized.qdq_bytes())
    assert exported.get_inputs()[0].shape == ["N", "T", WIDTH]
    random = np.random.default_rng(9)
    for length in (3, 12):
        x = random.normal(size=(1, length, WIDTH)).astype(np.float32)
        found = exported.run(None, {"x": x})[0]
        wanted = session(model.path).run(None, {"x": x})[0]
        assert decibels(found, wanted) > 20


def test_the_reason_is_what_no_model_stands_for(tmp_path: Path) -> None:
    """Sizes beyond a table are tried first, and were given as the reason: a transform has others."""
    nodes = [
        helper.make_node("Shape", ["x"], ["length"], start=1, end=2),
        helper.make_node("Slice", ["places", "first", "length", "second"], ["placed"]),
        helper.make_node("Add", ["x", "placed"], ["sum"]),
        helper.make_node("Unsqueeze", ["sum", "end"], ["signal"]),
        helper.make_node("DFT", ["signal"], ["waves"], axis=1),
        helper.make_node("Gather", ["waves", "real"], ["reals"], axis=3),
        helper.make_node("MatMul", ["reals", "w1"], ["y"]),
    ]
    constants = {
        "w1": CONSTANTS["w1"],
        "places": np.random.default_rng(7).normal(size=(1, 12, WIDTH)).astype(np.float32),
        **{"first": np.array([0]), "second": np.array([1]), "end": np.array([3]), "real": np.array(0)},
    }
    model = qglow.load_model(
        save(tiny_model(nodes, {"x": ["N", "T", WIDTH]}, ["y"], constants, opset=17), tmp_path)
    )
    quantized = model.quantize(model.profile([{"x": sample(5)}] * 3), repair=False, check=False)
    with pytest.raises(qglow.UnsupportedError, match="constant 'waves__.*' depends on shapes"):
        quantized.qdq_bytes()


def test_an_export_computes_what_the_float_model_computes_from_sizes(tmp_path: Path) -> None:
    """A bias by the distance of two tokens, clipped: no constant shows those of all lengths."""
    nodes = [
        helper.make_node("MatMul", ["x", "wq"], ["q"]),
        helper.make_node("Shape", ["q"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "one"], ["length"]),
        helper.make_node("Range", ["zero", "length", "one"], ["places"]),
        helper.make_node("Unsqueeze", ["places", "last"], ["column"]),
        helper.make_node("Sub", ["places", "column"], ["far"]),
        helper.make_node("Clip", ["far", "least", "most"], ["near"]),
        helper.make_node("Add", ["near", "most"], ["rows"]),
        helper.make_node("Gather", ["table", "rows"], ["bias"]),
        helper.make_node("Transpose", ["q"], ["qt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "qt"], ["products"]),
        helper.make_node("Add", ["products", "bias"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "q"], ["seen"]),
        helper.make_node("MatMul", ["seen", "w1"], ["y"]),
    ]
    random = np.random.default_rng(3)
    numbers = {"zero": 0, "one": 1, "least": -4, "most": 4}
    constants: dict[str, Array] = {
        **{name: CONSTANTS[name] for name in ("wq", "w1")},
        **{name: np.array(number, np.int64) for name, number in numbers.items()},
        "last": np.array([1], np.int64),
        "table": random.normal(size=9).astype(np.float32),
    }
    model = qglow.load_model(
        save(tiny_model(nodes, {"x": ["N", "T", WIDTH]}, ["y"], constants, opset=17), tmp_path)
    )
    quantized = model.quantize(model.profile(DATA))
    exported = session(quantized.qdq_bytes(), optimize=True)
    assert exported.get_inputs()[0].shape == ["N", "T", WIDTH]
    for batch, length in ((1, 3), (3, 40)):
        x = random.normal(size=(batch, length, WIDTH)).astype(np.float32)
        wanted = session(model.path).run(None, {"x": x})[0]
        assert decibels(exported.run(None, {"x": x})[0], wanted) > 20


def test_a_table_is_int8_at_all_lengths(tmp_path: Path) -> None:
    """What counts is its share of the weights: a bias for each pair of tokens grows with their number."""
    nodes = [
        helper.make_node("Gather", ["words", "ids"], ["word"]),
        helper.make_node("Mod", ["ids", "four"], ["kinds"]),
        helper.make_node("Gather", ["marks", "kinds"], ["mark"]),
        helper.make_node("Add", ["word", "mark"], ["x"]),
        helper.make_node("MatMul", ["x", "wq"], ["q"]),
        helper.make_node("Shape", ["ids"], ["length"], start=1, end=2),
        helper.make_node("Squeeze", ["length"], ["count"]),
        helper.make_node("Range", ["zero", "count", "one"], ["places"]),
        helper.make_node("Cast", ["places"], ["reals"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["reals", "last"], ["column"]),
        helper.make_node("Sub", ["reals", "column"], ["far"]),
        helper.make_node("Sin", ["far"], ["bias"]),
        helper.make_node("Transpose", ["q"], ["qt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "qt"], ["products"]),
        helper.make_node("Add", ["products", "bias"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "q"], ["seen"]),
        helper.make_node("Add", ["seen", "x"], ["sum"]),
        helper.make_node("MatMul", ["sum", "wk"], ["y"]),
    ]
    random = np.random.default_rng(8)
    constants: dict[str, Array] = {
        **{name: CONSTANTS[name] for name in ("wq", "wk")},
        **{name: np.array(number) for name, number in {"zero": 0, "one": 1, "four": 4}.items()},
        "last": np.array([1]),
        "words": random.normal(size=(128, WIDTH)).astype(np.float32),
        "marks": random.normal(size=(4, WIDTH)).astype(np.float32),
    }
    proto = tiny_model(nodes, {"ids": ["N", "T"]}, ["y"], constants, opset=17, input_type=TensorProto.INT64)
    model = qglow.load_model(save(proto, tmp_path))
    samples = {"ids": random.integers(0, 128, (8, 24))}
    quantized = model.quantize(model.profile(samples), repair=False, check=False)
    assert {"Gather_0", "Gather_2"} <= {node.name for node in quantized.report.quantized}
    exported, program = session(quantized.qdq_bytes()), quantized.compile(threads=1)
    assert exported.get_inputs()[0].shape == ["N", "T"]
    for length in (24, 72):
        ids = random.integers(0, 128, (2, length))
        assert decibels(exported.run(None, {"ids": ids})[0], program({"ids": ids})["y"]) > 60


CACHED = [
    helper.make_node("MatMul", ["x", "wq"], ["q"]),
    helper.make_node("MatMul", ["x", "wk"], ["k"]),
    helper.make_node("Concat", ["past", "k"], ["keys"], axis=1),
    helper.make_node("Transpose", ["keys"], ["kt"], perm=[0, 2, 1]),
    helper.make_node("MatMul", ["q", "kt"], ["scores"]),
    helper.make_node("Shape", ["past"], ["seen"], start=1, end=2),
    helper.make_node("Shape", ["q"], ["new"], start=1, end=2),
    helper.make_node("Add", ["seen", "new"], ["total"]),
    *(helper.make_node("Squeeze", [name], [f"{name}_count"]) for name in ("seen", "total")),
    helper.make_node("Range", ["zero", "total_count", "one"], ["places"]),
    helper.make_node("Range", ["seen_count", "total_count", "one"], ["rows"]),
    helper.make_node("Unsqueeze", ["rows", "last"], ["column"]),
    helper.make_node("LessOrEqual", ["places", "column"], ["causal"]),
    helper.make_node("Where", ["causal", "scores", "lowest"], ["masked"]),
    helper.make_node("Add", ["masked", "mask"], ["allowed"]),
    helper.make_node("Cast", ["places"], ["angles"], to=TensorProto.FLOAT16),
    helper.make_node("Cos", ["angles"], ["waves"]),
    helper.make_node("Cast", ["allowed"], ["allowed16"], to=TensorProto.FLOAT16),
    helper.make_node("Add", ["allowed16", "waves"], ["waved16"]),
    helper.make_node("Cast", ["waved16"], ["waved"], to=TensorProto.FLOAT),
    helper.make_node("Softmax", ["waved"], ["p"], axis=-1),
    helper.make_node("MatMul", ["p", "keys"], ["heads"]),
    helper.make_node("MatMul", ["heads", "w1"], ["y"]),
]
"""New tokens x [N, T] behind a cache [N, P], a mask [N, P + T] that is an input, and waves in 16 bits."""


@pytest.mark.parametrize("samples", [False, True])
def test_an_export_computes_masks_of_infinities(samples: bool, tmp_path: Path) -> None:
    """A causal mask of the length, as encoders of texts have it, is no constant that a range decides.

    samples: whether each has one of its own, as in decoders of translators: the graph has it once.
    """
    each = [
        helper.make_node("Shape", ["q"], ["count"], end=1),
        helper.make_node("Concat", ["count", "square"], ["sizes"], axis=0),
        helper.make_node("Expand", ["one", "sizes"], ["mask"]),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "wq"], ["q"]),
        helper.make_node("Shape", ["q"], ["length"], start=1, end=2),
        helper.make_node("Concat", ["length", "length"], ["square"], axis=0),
        helper.make_node("Expand", ["allowed", "square"], ["all"]),
        helper.make_node("Trilu", ["all"], ["lower"], upper=0),
        helper.make_node("Cast", ["lower"], ["seen"], to=TensorProto.BOOL),
        helper.make_node("Where", ["seen", "zero", "masked"], ["one" if samples else "mask"]),
        *(each if samples else ()),
        helper.make_node("Transpose", ["q"], ["qt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "qt"], ["products"]),
        helper.make_node("Add", ["products", "mask"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "q"], ["mixed"]),
        helper.make_node("MatMul", ["mixed", "w1"], ["y"]),
    ]
    constants: dict[str, Array] = {
        **{name: CONSTANTS[name] for name in ("wq", "w1")},
        "allowed": np.array(1, np.float32),
        "zero": np.array(0, np.float32),
        "masked": np.array(-np.inf, np.float32),
    }
    made = tiny_model(nodes, {"x": ["N", "T", WIDTH]}, ["y"], constants, opset=17)
    model = qglow.load_model(save(made, tmp_path))
    quantized = model.quantize(model.profile(DATA))
    exported = session(quantized.qdq_bytes(), optimize=True)
    assert exported.get_inputs()[0].shape == ["N", "T", WIDTH]
    x = sample(20, 2)
    assert decibels(exported.run(None, {"x": x})[0], session(model.path).run(None, {"x": x})[0]) > 25


def cached_inputs(past: int, new: int) -> dict[str, Array]:
    return {"x": sample(new), "mask": np.zeros((1, 1, past + new), np.float32), "past": sample(past)}


@pytest.mark.parametrize("past", [0, 5])
def test_the_export_of_a_model_with_a_cache_takes_any_length(past: int, tmp_path: Path) -> None:
    """Its mask is computed as the float model does, whatever the cache held at calibration."""
    inputs = {"x": ["N", "T", WIDTH], "mask": ["N", 1, "S"], "past": ["N", "P", WIDTH]}
    numbers = {"zero": np.array(0), "one": np.array(1), "last": np.array([1])}
    constants = {**CONSTANTS, **numbers, "lowest": np.array(-1e4, np.float32)}
    model = qglow.load_model(save(tiny_model(CACHED, inputs, ["y"], constants, opset=17), tmp_path))
    quantized = model.quantize(model.profile([cached_inputs(past, 8)] * 3))
    # Optimised, since MatMulInteger has sums that saturate on some processors otherwise.
    exported = session(quantized.qdq_bytes(), optimize=True)
    assert [value.shape for value in exported.get_inputs()] == [*inputs.values()]
    for sizes in ((0, 8), (5, 8), (40, 1), (3, 30)):
        feeds = cached_inputs(*sizes)
        found, wanted = exported.run(None, feeds)[0], session(model.path).run(None, feeds)[0]
        assert decibels(found, wanted) > 20


def test_without_the_float_model_there_is_no_export_of_all_shapes(tmp_path: Path) -> None:
    path = save(
        tiny_model(ATTENTION, {"x": ["N", "T", WIDTH]}, ["z"], CONSTANTS, opset=17), tmp_path, "moved.onnx"
    )
    model = qglow.load_model(path)
    quantized = model.quantize(model.profile(DATA))
    path.unlink()
    with pytest.raises(ModelError, match="say where it is"):
        quantized.export_qdq(tmp_path / "all.onnx")
    assert not (tmp_path / "all.onnx").exists()
    assert "say where it is" in quantized.save(tmp_path / "out")[0]


def test_an_export_tells_multiples_where_one_sample_is_special(tmp_path: Path) -> None:
    """Samples have four images each, and a product whose learned matrix is one for one sample alone."""
    random = np.random.default_rng(4)
    nodes = [
        helper.make_node("Reshape", ["x", "images"], ["heads"]),
        helper.make_node("Reshape", ["g", "grids"], ["places"]),
        helper.make_node("GridSample", ["heads", "places"], ["read"]),
        helper.make_node("Reshape", ["read", "flat"], ["rows"]),
        helper.make_node("Shape", ["x"], ["batch"], end=1),
        helper.make_node("Concat", ["batch", "tail"], ["sizes"], axis=0),
        helper.make_node("Expand", ["query", "sizes"], ["repeated"]),
        helper.make_node("MatMul", ["repeated", "map"], ["scores"], name="scores"),
        helper.make_node("MatMul", ["scores", "rows"], ["y"]),
    ]
    stored = {
        "images": np.array([-1, 4, 4, 4]),
        "grids": np.array([-1, 3, 3, 2]),
        "flat": np.array([-1, 9, 16]),
        "tail": np.array([5, 8]),
        "query": random.normal(size=(1, 5, 8)).astype(np.float32),
    }
    shapes = {"x": ["N", 16, 4, 4], "g": ["N", 4, 18], "map": [1, 8, 9]}
    path = save(tiny_model(nodes, shapes, ["y"], stored, opset=18), tmp_path)

    def drawn(samples: int) -> dict[str, Array]:
        return {
            "x": random.normal(size=(samples, 16, 4, 4)).astype(np.float32),
            "g": random.uniform(-1, 1, (samples, 4, 18)).astype(np.float32),
            "map": random.normal(size=(1, 8, 9)).astype(np.float32),
        }

    model = qglow.load_model(path)
    profile = model.profile([drawn(1) for _ in range(8)])
    quantized = model.quantize(profile, repair=False, check=False, keep_float=["scores"])
    exported, program = session(quantized.qdq_bytes()), quantized.compile()
    for samples in (1, 5):
        data = drawn(samples)
        assert decibels(exported.run(None, data)[0], program(data)["y"]) > 40
