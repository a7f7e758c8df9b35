"""Models with free dimensions: loaded, profiled over several shapes, quantized, and run in any shape."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import qglow
from qglow.artefacts.replay import graph_at
from qglow.cli.main import main
from qglow.core.errors import DataError, MemoryLimitError, ModelError, UsageError
from qglow.core.types import Array, Shape
from qglow.graph.graph import Graph
from qglow.report.parts import QuantizedParts
from tests.runtimes import NATIVE_ISAS
from tests.unit.importer.tiny import save, session, tiny_model

RANDOM = np.random.default_rng(11)
WIDTH, HIDDEN = 16, 32


def weights(*shape: int) -> Array:
    return (RANDOM.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)


ATTENTION = [
    helper.make_node("MatMul", ["x", "wq"], ["q"]),
    helper.make_node("MatMul", ["x", "wk"], ["k"]),
    helper.make_node("MatMul", ["x", "wv"], ["v"]),
    helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
    helper.make_node("MatMul", ["q", "kt"], ["scores"]),
    helper.make_node("Softmax", ["scores"], ["p"], axis=-1),
    helper.make_node("MatMul", ["p", "v"], ["seen"]),
    helper.make_node("Add", ["seen", "x"], ["residual"]),
    helper.make_node("MatMul", ["residual", "w1"], ["wide"]),
    helper.make_node("Relu", ["wide"], ["positive"]),
    helper.make_node("MatMul", ["positive", "w2"], ["y"]),
    helper.make_node("Shape", ["y"], ["shape"]),
    helper.make_node("Reshape", ["y", "shape"], ["z"]),
]
CONSTANTS = {
    **{name: weights(WIDTH, WIDTH) for name in ("wq", "wk", "wv")},
    "w1": weights(WIDTH, HIDDEN),
    "w2": weights(HIDDEN, 10),
}
LENGTHS = (5, 9, 9, 9, 12, 30)


def sample(length: int, batch: int = 1) -> Array:
    return RANDOM.normal(size=(batch, length, WIDTH)).astype(np.float32)


def sequences() -> Iterator[dict[str, Array]]:
    """Calibration data as a function gives it."""
    random = np.random.default_rng(5)
    for length in LENGTHS:
        yield {"x": random.normal(size=(length, WIDTH)).astype(np.float32)}


DATA = f"{__name__}:sequences"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = tiny_model(ATTENTION, {"x": ["N", "T", WIDTH]}, ["z"], CONSTANTS, opset=17)
    return save(model, tmp_path_factory.mktemp("shapes"), "attention.onnx")


@pytest.fixture(scope="module")
def quantized(path: Path) -> qglow.QuantizedModel:
    model = qglow.load_model(path)
    return model.quantize(model.profile(DATA))


def decibels(found: Array, expected: Array) -> float:
    return float(10 * np.log10(np.square(expected).sum() / np.square(expected - found).sum()))


def test_float_runs_in_any_shape(path: Path) -> None:
    model = qglow.load_model(path)
    assert model.dimensions == {"x": ("N", "T", WIDTH)}
    program = model.compile(threads=1)
    for batch, length in ((1, 5), (2, 7), (1, 5), (1, 40)):
        x = sample(length, batch)
        expected = session(path).run(None, {"x": x})[0]
        for found in (program({"x": x})["z"], model.interpret({"x": x})["z"]):
            assert found.shape == expected.shape
            assert np.abs(found - expected).max() < 1e-5


def test_what_needs_one_graph_names_the_dimensions(path: Path) -> None:
    model = qglow.load_model(path)
    for use in (
        lambda: model.graph,
        lambda: model.inputs,
        lambda: model.compile(threads=1).outputs,
        lambda: model.text(),
    ):
        with pytest.raises(qglow.UnboundError, match=r"\[N, T, 16\]; bind its dimensions"):
            use()
    assert model.at({"x": (1, 6, WIDTH)}).shapes == {"x": (1, 6, WIDTH)}


def test_quantize_says_that_a_profile_has_shapes(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quantize", str(path), "--dynamic"]) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert "bind its dimensions, as in --shape x=1,128,16, or give --profile, which" in message


def test_shapes_that_do_not_fit_are_refused(path: Path) -> None:
    program = qglow.load_model(path).compile(threads=1)
    with pytest.raises(DataError, match="contradicts the model, which has"):
        program({"x": np.zeros((1, 5, WIDTH + 1), np.float32)})
    with pytest.raises(DataError, match="inputs y given, x wanted"):
        program({"y": sample(5)})
    bound = qglow.load_model(path, {"x": (1, 5, WIDTH)}).compile(threads=1)
    with pytest.raises(DataError, match="the program wants"):
        bound({"x": sample(6)})


def test_a_free_batch_runs_in_any_batch(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["y"])]
    model = tiny_model(nodes, {"x": ["N", WIDTH]}, ["y"], {"w1": CONSTANTS["w1"]})
    program = qglow.load_model(save(model, tmp_path)).compile(threads=1)
    assert program.outputs["y"].shape == (1, HIDDEN)
    x = sample(7)[0]
    together = program({"x": x})["y"]
    assert np.array_equal(together, np.concatenate([program({"x": row[None]})["y"] for row in x]))


def test_a_profile_is_of_the_most_frequent_shape(path: Path) -> None:
    profile = qglow.load_model(path).profile(DATA)
    assert dict(profile.shapes) == {"x": (1, 9, WIDTH)}
    assert profile.samples == len(LENGTHS)
    assert len(profile.kept) == sum(length >= 9 for length in LENGTHS)
    seen = profile.by_name()["y"] if "y" in profile.by_name() else profile.by_name()["z"]
    assert seen.total == sum(LENGTHS) * 10


def test_longer_samples_are_kept_in_part(path: Path) -> None:
    random = np.random.default_rng(5)
    lengths = [9, 9, 4, 12, 30, 12, *range(40, 60)]
    drawn = [random.normal(size=(1, length, WIDTH)).astype(np.float32) for length in lengths]
    profile = qglow.load_model(path).profile([{"x": x} for x in drawn], keep_samples=4)
    assert profile.shapes["x"] == (1, 12, WIDTH) and len(profile.kept) == 4
    begun = {x[0, :12].tobytes() for x in drawn}
    assert all(sample.inputs["x"].tobytes() in begun for sample in profile.kept)


def test_samples_of_several_shapes_tell_how_many_are_enough(path: Path) -> None:
    model = qglow.load_model(path)
    report = qglow.calibration_sufficiency(model, DATA, resamples=10)
    assert report.subsets == (2, 3, 6)
    alike = [{"x": sample(9)[0]} for _ in range(6)]
    bound = qglow.load_model(path, shapes={"x": (1, 9, WIDTH)})
    same = qglow.calibration_sufficiency(bound, alike, resamples=10)
    assert qglow.calibration_sufficiency(model, alike, resamples=10) == same
    assert [value.value for value in report.values] == [value.value for value in same.values]


def test_engines_see_the_same(path: Path) -> None:
    model = qglow.load_model(path)
    compiled, interpreted = (model.profile(DATA, engine=name) for name in ("compiled", "interpreter"))
    assert compiled.by_name().keys() == interpreted.by_name().keys()
    for name, found in compiled.by_name().items():
        other = interpreted.by_name()[name]
        assert found.total == other.total
        assert found.low == pytest.approx(other.low, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("isa", NATIVE_ISAS)
def test_int8_runs_in_any_shape_with_the_bits_of_the_interpreter(
    quantized: qglow.QuantizedModel, path: Path, isa: str
) -> None:
    program = quantized.compile(isa=isa, threads=1)
    for batch, length in ((1, 9), (1, 5), (2, 9), (3, 17)):
        x = sample(length, batch)
        found = program({"x": x})["z"]
        assert decibels(found, session(path).run(None, {"x": x})[0]) > 15
        assert np.array_equal(found, quantized.interpret({"x": x})["z"])
        assert np.array_equal(found[:1], program({"x": x[:1]})["z"])


def test_a_directory_runs_in_any_shape_where_its_model_is(
    quantized: qglow.QuantizedModel, path: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "attention.onnx"
    copy.write_bytes(path.read_bytes())
    model = qglow.load_model(copy)
    model.quantize(model.profile(DATA)).save(tmp_path / "out")
    program = qglow.load_quantized(tmp_path / "out").compile(threads=1)
    x = sample(21)
    assert np.array_equal(program({"x": x})["z"], quantized.interpret({"x": x})["z"])
    copy.unlink()
    fresh = qglow.load_quantized(tmp_path / "out").compile(threads=1)
    assert fresh({"x": sample(9)})["z"].shape == (1, 9, 10)
    with pytest.raises(ModelError, match="cannot read the float model"):
        fresh({"x": x})


def test_weights_rounded_by_gptq_are_those_of_the_profile_in_every_shape(path: Path) -> None:
    model = qglow.load_model(path, {"x": (1, 9, WIDTH)})
    data = {"x": np.concatenate([sample(9) for _ in range(8)])}
    quantized = model.quantize(model.profile(data), rounding="gptq", calibration_data=data)
    program = quantized.compile(threads=1)
    x = sample(13)
    assert np.array_equal(program({"x": x})["z"], quantized.interpret({"x": x})["z"])
    rows = program({"x": np.concatenate([x[:, :9]])})["z"]
    assert rows.shape == (1, 9, 10)


RULES = [
    *(
        (operator, dtype)
        for operator in ("MatMul", "Gemm", "Relu")
        for dtype in ("int16", "float16", "float", "int8")
    ),
    ("MatMul", "dynamic"),
]


@pytest.mark.parametrize("scheme", ["cnn", "transformer"])
@pytest.mark.parametrize(("operator", "dtype"), RULES)
def test_precisions_hold_in_every_shape(path: Path, operator: str, dtype: str, scheme: str) -> None:
    model = qglow.load_model(path, {"x": (1, 9, WIDTH)})
    profile = model.profile({"x": np.concatenate([sample(9) for _ in range(8)])})
    rules = (qglow.Rule(qglow.Match(operator=operator), dtype=dtype),)
    quantized = model.quantize(profile, qglow.Recipe(rules=rules, scheme=scheme), repair=False, check=False)
    program = quantized.compile(threads=1)
    x = sample(9, 3)
    together = program({"x": x})["z"]
    assert np.array_equal(together, np.concatenate([program({"x": row[None]})["z"] for row in x]))
    assert decibels(together, session(path).run(None, {"x": x})[0]) > 8


def test_threads_may_share_it(quantized: qglow.QuantizedModel) -> None:
    program = quantized.compile(threads=1)
    inputs = [sample(length) for length in (4, 6, 4, 6)]
    expected = [quantized.interpret({"x": x})["z"] for x in inputs]
    found: dict[int, Array] = {}

    def run(index: int) -> None:
        found[index] = program({"x": inputs[index]})["z"]

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(found[index], expected[index]) for index in range(len(inputs)))


def test_the_size_of_an_image_may_be_free(tmp_path: Path) -> None:
    random = np.random.default_rng(8)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "w2"], ["y"], pads=[1, 1, 1, 1]),
    ]
    constants = {
        "w": random.normal(size=(8, 3, 3, 3)).astype(np.float32),
        "b": random.normal(size=8).astype(np.float32),
        "w2": random.normal(size=(4, 8, 3, 3)).astype(np.float32),
    }
    path = save(tiny_model(nodes, {"x": ["N", 3, "H", "W"]}, ["y"], constants), tmp_path)
    folder = tmp_path / "data"
    folder.mkdir()
    for index, (height, width) in enumerate([(12, 10), (12, 10), (7, 15)]):
        x = random.normal(size=(2, 3, height, width)).astype(np.float32)
        np.savez(folder / f"{index}.npz", x=x)
    model = qglow.load_model(path)
    profile = model.profile(folder)
    assert dict(profile.shapes) == {"x": (1, 3, 12, 10)} and profile.samples == 6
    quantized = model.quantize(profile)
    for height, width in ((12, 10), (9, 9), (21, 6)):
        x = random.normal(size=(1, 3, height, width)).astype(np.float32)
        found = quantized.compile(threads=1)({"x": x})["y"]
        assert np.array_equal(found, quantized.interpret({"x": x})["y"])
        assert decibels(found, session(path).run(None, {"x": x})[0]) > 15


POSITIONS, WORDS = weights(64, WIDTH), weights(50, WIDTH)
EMBEDDED = [
    helper.make_node("Gather", ["words", "ids"], ["looked_up"]),
    helper.make_node("Shape", ["ids"], ["extent"], start=1, end=2),
    helper.make_node("Slice", ["positions", "zero", "extent", "zero"], ["places"]),
    helper.make_node("Add", ["looked_up", "places"], ["x"]),
    *ATTENTION,
]


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> qglow.QuantizedModel:
    """An encoder of words and their positions."""
    constants = {**CONSTANTS, "words": WORDS, "positions": POSITIONS, "zero": np.zeros(1, np.int64)}
    model = tiny_model(
        EMBEDDED, {"ids": ["N", "T"]}, ["z"], constants, opset=17, input_type=TensorProto.INT64
    )
    path = save(model, tmp_path_factory.mktemp("words"), "encoder.onnx")
    loaded = qglow.load_model(path, {"ids": (1, 9)})
    rows = np.random.default_rng(2).integers(0, 50, size=(12, 9))
    return loaded.quantize(loaded.profile({"ids": rows}), scheme="transformer")


def test_tables_with_scales_of_rows_are_had_in_any_shape(embedded: qglow.QuantizedModel) -> None:
    assert any(node.name.endswith(".rows") for node in embedded.float_graph.nodes)
    program = embedded.compile(threads=1)
    for batch, length in ((1, 9), (1, 20), (3, 4)):
        ids = RANDOM.integers(0, 50, size=(batch, length))
        together = program({"ids": ids})["z"]
        assert np.array_equal(together, embedded.interpret({"ids": ids})["z"])
        assert np.array_equal(together[:1], program({"ids": ids[:1]})["z"])


def test_the_exported_model_takes_any_shape(
    quantized: qglow.QuantizedModel, embedded: qglow.QuantizedModel, tmp_path: Path
) -> None:
    assert quantized.save(tmp_path / "a") == () == embedded.save(tmp_path / "b")
    program = quantized.compile(threads=1)
    # Optimised, since MatMulInteger has sums that saturate on some processors otherwise.
    exported = session(tmp_path / "a" / "model.qdq.onnx", optimize=True)
    assert exported.get_inputs()[0].shape == ["N", "T", WIDTH]
    for batch, length in ((1, 9), (1, 3), (4, 30)):
        x = sample(length, batch)
        np.testing.assert_allclose(exported.run(None, {"x": x})[0], program({"x": x})["z"], atol=1e-4)
    program, exported = embedded.compile(threads=1), session(tmp_path / "b" / "model.qdq.onnx", optimize=True)
    for batch, length in ((1, 9), (1, 64), (3, 4)):
        ids = RANDOM.integers(0, 50, size=(batch, length))
        np.testing.assert_allclose(exported.run(None, {"ids": ids})[0], program({"ids": ids})["z"], atol=1e-4)
    bound = session(quantized.qdq_bytes(bound_shapes=True))
    assert bound.get_inputs()[0].shape == [1, 9, WIDTH]


def test_sizes_that_take_too_much_memory_are_not_the_end(
    quantized: qglow.QuantizedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def limited(parts: QuantizedParts, shapes: Mapping[str, Shape]) -> Graph:
        if shapes["x"][1] > 15:
            raise MemoryLimitError("too much")
        return graph_at(parts, shapes)

    monkeypatch.setattr("qglow.artefacts.open_export.graph_at", limited)
    assert session(quantized.qdq_bytes()).get_inputs()[0].shape == ["N", "T", WIDTH]


def test_a_batch_is_not_for_samples_of_free_shapes(path: Path) -> None:
    with pytest.raises(UsageError, match="samples run one by one"):
        qglow.load_model(path).profile(DATA, batch_size=4)


def test_a_model_that_is_quantized_takes_no_profile(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    constants = {"s": np.array(0.1, np.float32), "z": np.array(0, np.int8)}
    path = save(tiny_model(nodes, {"x": ["N", "T"]}, ["y"], constants), tmp_path)
    np.save(tmp_path / "data.npy", np.ones((3, 4), np.float32))
    with pytest.raises(UsageError, match="is quantized already"):
        qglow.load_model(path).profile(tmp_path / "data.npy")


def test_commands_take_shapes_from_data_and_profile(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, profile, out = tmp_path / "x.npy", tmp_path / "p.yaml", tmp_path / "out"
    np.save(data, np.concatenate([sample(9) for _ in range(4)]))
    assert main(["profile", str(path), "--data", str(data), "-o", str(profile)]) == 0
    assert main(["quantize", "--profile", str(profile), "-o", str(out)]) == 0
    assert main(["compare", str(out), "--data", str(data)]) == 0
    capsys.readouterr()
    assert main(["inspect", str(path)]) == 2
    assert "--shape x=1,128,16" in capsys.readouterr().err
