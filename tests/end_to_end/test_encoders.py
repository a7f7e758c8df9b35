"""Encoders of texts: padding, batches and lengths leave the vectors of a text as they are, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import qglow
from qglow.core.types import Array
from tests.unit.importer.tiny import save, session

WORDS, WIDTH, HEADS, INNER, LONGEST = 40, 32, 4, 64, 24
LENGTHS = (12, 7, 3)
node = helper.make_node


def encoder(hidden: float, chosen: bool = False) -> onnx.ModelProto:
    """ids and mask [batch, n] -> tokens [batch, n, width], and vectors [batch, width] of length 1.

    Vectors are means of the tokens that the mask leaves. hidden: what is added to scores of other keys, or
    stands in their place where they are `chosen`.
    """
    random = np.random.default_rng(9)

    def matrix(rows: int, columns: int) -> Array:
        return (random.normal(size=(rows, columns)) / np.sqrt(rows)).astype(np.float32)

    constants = {
        "words": 3 * matrix(WORDS, WIDTH),
        "places": matrix(LONGEST, WIDTH),
        **{name: matrix(WIDTH, WIDTH) for name in ("wq", "wk", "wv", "wo")},
        **{"up": matrix(WIDTH, INNER), "up_bias": matrix(1, INNER)[0], "down": matrix(INNER, WIDTH)},
        **{"scale": np.ones(WIDTH, np.float32), "shift": np.zeros(WIDTH, np.float32)},
        **{"sharp": np.array(0.35, np.float32), "low": np.array(hidden, np.float32)},
        **{"one": np.array(1, np.float32), "least": np.array(1e-9, np.float32)},
        "heads": np.array([0, 0, HEADS, WIDTH // HEADS]),
        "flat": np.array([0, 0, WIDTH]),
        **{"axes": np.array([1, 2]), "last": np.array([2]), "along": np.array([1])},
        **{"first": np.array([0]), "second": np.array([1])},
    }
    nodes = [
        node("Shape", ["ids"], ["length"], start=1, end=2),
        node("Slice", ["places", "first", "length", "first"], ["placed"]),
        node("Gather", ["words", "ids"], ["embedded"]),
        node("Add", ["embedded", "placed"], ["summed"]),
        node("LayerNormalization", ["summed", "scale", "shift"], ["x"]),
        node("Cast", ["mask"], ["known"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["known", "axes"], ["wide"]),
        node("Sub", ["one", "wide"], ["unknown"]),
        node("Mul", ["unknown", "low"], ["added"]),
    ]
    if chosen:
        nodes[-2:] = [node("Cast", ["wide"], ["shown"], to=TensorProto.BOOL)]
        masking = node("Where", ["shown", "scores", "low"], ["masked"])
    else:
        masking = node("Add", ["scores", "added"], ["masked"])
    for name in "qkv":
        nodes += [
            node("MatMul", ["x", f"w{name}"], [f"{name}_rows"]),
            node("Reshape", [f"{name}_rows", "heads"], [f"{name}_apart"]),
            node("Transpose", [f"{name}_apart"], [name], perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]),
        ]
    nodes += [
        node("MatMul", ["q", "k"], ["raw"]),
        node("Mul", ["raw", "sharp"], ["scores"]),
        masking,
        node("Softmax", ["masked"], ["shares"], axis=-1),
        node("MatMul", ["shares", "v"], ["seen"]),
        node("Transpose", ["seen"], ["turned"], perm=[0, 2, 1, 3]),
        node("Reshape", ["turned", "flat"], ["rows"]),
        node("MatMul", ["rows", "wo"], ["mixed"]),
        node("Add", ["mixed", "x"], ["first_sum"]),
        node("LayerNormalization", ["first_sum", "scale", "shift"], ["y"]),
        node("MatMul", ["y", "up"], ["wider"]),
        node("Add", ["wider", "up_bias"], ["biased"]),
        node("Relu", ["biased"], ["positive"]),
        node("MatMul", ["positive", "down"], ["narrow"]),
        node("Add", ["narrow", "y"], ["second_sum"]),
        node("LayerNormalization", ["second_sum", "scale", "shift"], ["tokens"]),
        node("Unsqueeze", ["known", "last"], ["weights"]),
        node("Mul", ["tokens", "weights"], ["counted"]),
        node("ReduceSum", ["counted", "along"], ["total"], keepdims=0),
        node("ReduceSum", ["weights", "along"], ["count"], keepdims=0),
        node("Max", ["count", "least"], ["divisor"]),
        node("Div", ["total", "divisor"], ["mean"]),
        node("ReduceL2", ["mean"], ["size"], axes=[1], keepdims=1),
        node("Div", ["mean", "size"], ["vectors"]),
    ]
    graph = helper.make_graph(
        nodes,
        "encoder",
        [helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", "n"]) for n in ("ids", "mask")],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("tokens", "vectors")],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def texts(seed: int, lengths: tuple[int, ...], size: int) -> dict[str, Array]:
    """Drawn texts of these lengths, filled up to a size; what fills them up is drawn too."""
    ids = np.random.default_rng(seed).integers(0, WORDS, (len(lengths), size))
    return {"ids": ids, "mask": (np.arange(size) < np.array(lengths)[:, None]).astype(np.int64)}


def one_of(batch: dict[str, Array], number: int, length: int) -> dict[str, Array]:
    return {name: array[number : number + 1, :length] for name, array in batch.items()}


@pytest.fixture(scope="module", params=[-10000.0, float(np.finfo(np.float32).min)], ids=["finite", "least"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(encoder(request.param), tmp_path_factory.mktemp("encoder"), "encoder.onnx")


@pytest.fixture(scope="module", params=["float32", "int8", "dynamic", "int4"])
def program(request: pytest.FixtureRequest, path: Path) -> qglow.Executable:
    sizes = {"ids": (1, 12), "mask": (1, 12)}
    model = qglow.load_model(path, sizes)
    if request.param == "float32":
        return qglow.load_model(path).compile()
    if request.param == "int8":
        samples = [texts(seed, (length,), 12) for seed, length in enumerate((12, 9, 7, 12, 5, 3, 12, 11))]
        data = {name: np.concatenate([sample[name] for sample in samples]) for name in ("ids", "mask")}
        return model.quantize(model.profile(data)).compile()
    options: dict[str, Any] = {"dynamic": True} if request.param == "dynamic" else {"weights": "int4"}
    return model.quantize(**options).compile()


def test_a_padded_batch_is_its_texts_alone(program: qglow.Executable) -> None:
    batch = texts(20, LENGTHS, 12)
    together = program(batch)
    for number, length in enumerate(LENGTHS):
        alone = program(one_of(batch, number, 12))
        assert together["tokens"][number].tobytes() == alone["tokens"][0].tobytes()
        assert together["vectors"][number].tobytes() == alone["vectors"][0].tobytes()
        short = program(one_of(batch, number, length))
        assert alone["tokens"][0, :length].tobytes() == short["tokens"][0].tobytes()
        assert alone["vectors"].tobytes() == short["vectors"].tobytes()


def test_what_fills_a_text_up_changes_nothing(program: qglow.Executable) -> None:
    batch, other = texts(21, LENGTHS, 12), texts(22, LENGTHS, 12)
    filled = {**batch, "ids": np.where(batch["mask"] == 1, batch["ids"], other["ids"])}
    found, again = program(batch), program(filled)
    assert found["vectors"].tobytes() == again["vectors"].tobytes()
    for number, length in enumerate(LENGTHS):
        assert found["tokens"][number, :length].tobytes() == again["tokens"][number, :length].tobytes()
    assert np.any(found["tokens"] != again["tokens"])


def test_vectors_are_those_of_onnxruntime(path: Path, program: qglow.Executable) -> None:
    batch = texts(23, LENGTHS, 12)
    found = program(batch)["vectors"]
    expected = session(path).run(["vectors"], batch)[0]
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    assert float((found * expected).sum(1).min()) > 0.97


def test_lengths_of_one_program_have_the_bits_of_their_own(tmp_path: Path) -> None:
    path = save(encoder(-10000.0, chosen=True), tmp_path)
    own = qglow.load_model(path).compile()
    bounded = qglow.load_model(path, {"ids": (1, 12), "mask": (1, 12)}).compile(bounds={"n": 16})
    for length in LENGTHS:
        text = texts(length, (length,), length)
        wanted, found = own(text), bounded(text)
        assert all(found[name].tobytes() == wanted[name].tobytes() for name in wanted)


def test_vectors_of_texts_longer_than_all_that_calibrated(tmp_path: Path) -> None:
    """Means divide by a count of tokens, which has no range that few texts could give."""
    clamped = encoder(-10000.0)
    del clamped.graph.node[-4:]
    clamped.graph.node.extend(  # as PyTorch exports clamp(min=1e-9) and normalize()
        [
            node("Clip", ["count", "least"], ["divisor"]),
            node("Div", ["total", "divisor"], ["mean"]),
            node("ReduceL2", ["mean"], ["size"], axes=[1], keepdims=1),
            node("Clip", ["size", "least"], ["positive_size"]),
            node("Shape", ["mean"], ["sizes"]),
            node("Expand", ["positive_size", "sizes"], ["widened"]),
            node("Div", ["mean", "widened"], ["vectors"]),
        ]
    )
    place = save(clamped, tmp_path, "encoder.onnx")
    short = [texts(seed, (length,), length) for seed, length in enumerate((3, 4, 5, 6) * 6)]
    model = qglow.load_model(place)
    program = model.quantize(model.profile(short)).compile()
    for length in (4, 12, LONGEST):
        text = texts(99, (length,), length)
        wanted, found = session(place).run(["vectors"], text)[0], program(text)["vectors"]
        assert 10 * np.log10((wanted**2).sum() / ((found - wanted) ** 2).sum()) > 25


def test_calibration_takes_texts_of_several_lengths(tmp_path: Path) -> None:
    """Rounding, efforts and searches use those that fit the profile's sizes, and tell of the others."""
    place = save(encoder(-10000.0), tmp_path, "encoder.onnx")
    drawn = [texts(seed, (length,), length) for seed, length in enumerate((6, 6, 9, 12, 4, 6))]
    model = qglow.load_model(place)
    profile = model.profile(drawn)
    assert profile.shapes["ids"] == (1, 6)
    told = "2 longer ones are cut to them and 1 others are left out"
    choices: tuple[dict[str, Any], ...] = (
        {"profile": profile, "rounding": "gptq"},
        {"profile": profile, "effort": "balanced"},
        {"weights": "int4:16", "rounding": "gptq"},
    )
    for choice in choices:
        quantized = model.quantize(calibration_data=drawn, **choice)
        assert quantized.report.warnings[-1].endswith(told)
        assert quantized.compile()(texts(50, (10,), 10))["vectors"].shape == (1, WIDTH)
    goal = qglow.Goal(min_sqnr_db=10.0)
    assert qglow.tune(model, profile, drawn, goal, calibration_data=drawn).trials
    assert qglow.mix_weights(model, drawn, "5bits").layers
