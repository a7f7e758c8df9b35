"""Models whose shapes depend on values of their inputs, through the public API."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import qglow
from qglow.cli.main import main
from qglow.core.types import Array
from qglow.toolchain import undecided
from qglow.toolchain.undecided import Kept, Specialisation
from tests.unit.importer.tiny import save, session, tiny_model

X = np.random.default_rng(7).standard_normal((2, 6)).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """y = Neg(ReduceSum(Reshape(x, sizes), axes))."""
    nodes = [
        helper.make_node("Reshape", ["x", "sizes"], ["r"]),
        helper.make_node("ReduceSum", ["r", "axes"], ["s"], keepdims=0),
        helper.make_node("Neg", ["s"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 6]),
        helper.make_tensor_value_info("sizes", TensorProto.INT64, [2]),
        helper.make_tensor_value_info("axes", TensorProto.INT64, [1]),
    ]
    graph = helper.make_graph(
        nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    )
    return save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path)


def feeds(*sizes: int, axis: int = 1) -> dict[str, Array]:
    return {"x": X, "sizes": np.array(sizes), "axes": np.array([axis])}


@pytest.mark.parametrize("native", [False, True])
def test_calls_are_those_of_onnxruntime_whatever_the_values(native: bool, path: Path) -> None:
    model = qglow.load_model(path, native=native)
    program, reference = model.compile(threads=1), session(path)
    assert list(program.inputs) == list(model.inputs) == ["x", "sizes", "axes"]
    for given in (feeds(3, 4), feeds(4, 3), feeds(3, 4), feeds(12, 1, axis=0), feeds(3, 4, axis=0)):
        (expected,) = reference.run(None, given)
        np.testing.assert_allclose(program(given)["y"], expected, rtol=1e-5)
        np.testing.assert_allclose(model.interpret(given)["y"], expected, rtol=1e-5)


def test_values_that_were_seen_are_not_imported_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = qglow.load_model(path, native=True).compile(threads=1)
    first = program(feeds(3, 4))["y"]
    monkeypatch.setattr(undecided, "read_model", None)
    np.testing.assert_array_equal(program(feeds(3, 4))["y"], first)
    with pytest.raises(TypeError):
        program(feeds(4, 3))


def test_threads_share_specialisations(path: Path) -> None:
    program = qglow.load_model(path, native=True).compile(threads=1)
    found: dict[int, Array] = {}

    def call(number: int) -> None:
        found[number] = program(feeds(*((3, 4) if number % 2 else (4, 3))))["y"]

    workers = [threading.Thread(target=call, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [found[number].shape for number in range(6)] == [(4,), (3,)] * 3


def test_what_needs_one_graph_asks_for_the_values(path: Path) -> None:
    model = qglow.load_model(path)
    assert "'sizes'" in model.bound[0]
    program = model.compile(threads=1)
    for use in (
        lambda: model.graph,
        lambda: model.outputs,
        lambda: program.outputs,
        lambda: program.program,
        lambda: model.profile({"x": X[None]}),
    ):
        with pytest.raises(qglow.UndecidedError, match="'sizes'"):
            use()
    with pytest.raises(qglow.UsageError, match="the values of input 'sizes'"):
        program.bind({}, {})


def test_values_that_all_samples_share_are_those_of_the_profile(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sampling rate that every sample holds, for example: nobody has to give it once more."""
    model, random = qglow.load_model(path), np.random.default_rng(5)
    rows = [{**feeds(3, 4), "x": random.normal(size=(2, 6)).astype(np.float32)} for _ in range(8)]
    profile = model.profile(rows)
    assert {name: np.ravel(value).tolist() for name, value in profile.model.values.items()} == {
        "sizes": [3, 4],
        "axes": [1],
    }
    assert qglow.calibration_sufficiency(model, rows).subsets
    program = model.quantize(profile).compile(threads=1)
    (wanted,) = session(path).run(None, rows[0])
    assert np.abs(program({"x": rows[0]["x"]})["y"] - wanted).max() < 0.05 * np.abs(wanted).max()
    with pytest.raises(qglow.DataError, match="sample 8 has another value of input 'sizes' than sample 0"):
        model.profile([*rows, feeds(4, 3)])
    folder = tmp_path / "samples"
    folder.mkdir()
    for number, row in enumerate(rows):
        np.savez(folder / f"{number}.npz", **row)  # type: ignore[arg-type]
    assert main(["profile", str(path), "--data", str(folder), "-o", str(tmp_path / "p.yaml")]) == 0
    assert "values of sizes, axes as in the samples: they decide shapes" in capsys.readouterr().err


def test_wrong_inputs_are_told_in_one_line(path: Path) -> None:
    program = qglow.load_model(path, native=True).compile(threads=1)
    with pytest.raises(qglow.DataError, match="inputs x given, x, sizes, axes wanted"):
        program({"x": X})
    with pytest.raises(qglow.UsageError, match="value of 'sizes' is int32"):
        program({**feeds(3, 4), "sizes": np.array([3, 4], np.int32)})
    with pytest.raises(qglow.UnsupportedError, match="does not reshape"):
        program(feeds(3, 5))


def test_model_that_changes_is_noticed(path: Path) -> None:
    program = qglow.load_model(path).compile(threads=1)
    changed = onnx.load(path)
    changed.graph.node[2].op_type = "Abs"
    onnx.save(changed, path)
    with pytest.raises(qglow.ModelError, match="has changed"):
        program(feeds(3, 4))


def test_old_specialisations_make_room() -> None:
    kept, made = Kept[int](), []
    keys = [Specialisation((("n", "int64", (), bytes([i])),)) for i in range(undecided.KEPT + 1)]
    for key in [*keys, keys[-1], keys[0]]:
        kept.get(key, lambda: made.append(1) or len(made))  # type: ignore[func-returns-value]
    assert len(made) == undecided.KEPT + 2


def test_run_takes_values(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "d.npz", x=X)
    command = ["run", str(path), "--data", str(tmp_path / "d.npz")]
    assert main(command) == 2
    assert "as in --value sizes=..." in capsys.readouterr().err
    assert main([*command, "--value", "sizes=2,6", "--value", "axes=1"]) == 0
    assert f"y [] [{-X[0].sum():.6g}]" in capsys.readouterr().out


def test_a_batch_of_inputs_beside_values_that_decide(tmp_path: Path) -> None:
    """Features beside categories, of which the largest decides how many there are, as Keras encodes them."""
    nodes = [
        helper.make_node("ReduceMax", ["c"], ["most"], keepdims=0),
        helper.make_node("Range", ["zero", "most", "one"], ["places"]),
        helper.make_node("Less", ["places", "c"], ["below"]),
        helper.make_node("Cast", ["below"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Concat", ["x", "real"], ["y"], axis=1),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6]),
        helper.make_tensor_value_info("c", TensorProto.INT64, ["m", 1]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    constants = [onnx.numpy_helper.from_array(np.array(n), name) for n, name in ((0, "zero"), (1, "one"))]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = save(made, tmp_path)
    program, runtime = qglow.load_model(path, native=True).compile(threads=1), session(path)
    for count in (1, 2):
        given = {"x": X[:count], "c": np.array([[3], [2]])[:count]}
        np.testing.assert_array_equal(program(given)["y"], runtime.run(None, given)[0])
    with pytest.raises(qglow.UsageError, match="x=2,5 contradicts the model"):
        program({"x": X[:, :5], "c": np.array([[3], [2]])})


def test_what_a_text_decides_is_data(tmp_path: Path) -> None:
    """Scores of every token with each class, of which there are as many as marks in the text."""
    random = np.random.default_rng(3)
    constants: dict[str, Array] = {
        "table": random.normal(size=(20, 16)).astype(np.float32),
        "w": random.normal(size=(16, 12)).astype(np.float32),
        **{name: np.array(number) for name, number in {"mark": 7, "zero": 0, "one": 1}.items()},
        "last": np.array([1]),
    }
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["tokens"]),
        helper.make_node("MatMul", ["tokens", "w"], ["hidden"]),
        helper.make_node("Equal", ["ids", "mark"], ["marked"]),
        helper.make_node("Cast", ["marked"], ["marks"], to=TensorProto.INT64),
        helper.make_node("ReduceSum", ["marks", "last"], ["counts"], keepdims=0),
        helper.make_node("ReduceMax", ["counts"], ["count"], keepdims=0),
        helper.make_node("Range", ["zero", "count", "one"], ["classes"]),
        helper.make_node("Cast", ["classes"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["hidden"], ["whole"], keepdims=1),
        helper.make_node("Mul", ["whole", "numbers"], ["y"]),
    ]
    made = tiny_model(nodes, {"ids": ["N", "T"]}, ["y"], constants, opset=17, input_type=TensorProto.INT64)
    model = qglow.load_model(save(made, tmp_path))
    texts = [random.integers(0, 20, (1, 9)) for _ in range(12)]
    quantized = model.quantize(model.profile([{"ids": text} for text in texts]), repair=False)
    program = quantized.compile(threads=1)
    for count in (2, 5):
        ids = np.array([[3] * (9 - count) + [7] * count])
        (expected,) = session(model.path).run(None, {"ids": ids})
        assert expected.shape[-1] == count
        np.testing.assert_allclose(program({"ids": ids})["y"], expected, rtol=0.05)
    assert len(program.programs) == 1
