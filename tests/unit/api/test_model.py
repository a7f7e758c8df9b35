from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import qglow
from tests.zoo import REPOSITORY

DIGITS = REPOSITORY / "calib_data" / "digits.onnx"
CALIBRATION = REPOSITORY / "calib_data" / "calib.npz"


def gemm(path: Path, batch: int | str, outputs: int = 3) -> Path:
    """y = Relu(x w), for x [batch, 4]."""
    weights = np.linspace(-1, 1, 4 * outputs, dtype=np.float32).reshape(4, outputs)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])],
        "gemm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, outputs])],
        [numpy_helper.from_array(weights, "w")],
    )
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    return path


def rows(count: int) -> dict[str, Any]:
    return {"x": np.random.default_rng(3).normal(size=(count, 4)).astype(np.float32)}


def test_free_batch_is_bound_to_1_and_said() -> None:
    model = qglow.load_model(DIGITS)
    assert model.shapes == {"input": (1, 1, 8, 8)} and model.batch_size == 1
    assert len(model.bound) == 1 and "bound to 1" in model.bound[0]
    assert qglow.load_model(DIGITS, {"input": (2, 1, 8, 8)}).bound == ()


def test_interpreter_and_compiled_program_agree() -> None:
    model = qglow.load_model(DIGITS)
    with np.load(CALIBRATION) as data:
        inputs = {"input": data["input"][:1]}
    found, expected = model.compile()(inputs)["logits"], model.interpret(inputs)["logits"]
    assert np.abs(found - expected).max() <= 1e-4 * np.ptp(expected)


def test_stages_are_immutable() -> None:
    model = qglow.load_model(DIGITS)
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.path = Path("other")  # type: ignore[misc]
    text = model.text()
    model.graph.nodes.clear()
    assert model.text() == text


def test_batch_of_the_profile_changes_nothing(tmp_path: Path) -> None:
    model = qglow.load_model(gemm(tmp_path / "m.onnx", "N"))
    texts = set()
    for batch in (1, 4, 5):
        path = tmp_path / f"{batch}.yaml"
        qglow.save_profile(model.profile(rows(11), batch_size=batch), path)
        texts.add(path.read_text())
    assert len(texts) == 1


def test_model_loaded_with_a_batch_takes_the_profile_of_one_without(tmp_path: Path) -> None:
    path = gemm(tmp_path / "m.onnx", "N")
    one, five = qglow.load_model(path), qglow.load_model(path, {"x": (5, 4)})
    ranges = five.profile(rows(10))
    assert ranges.shapes == {"x": (1, 4)}
    quantized = five.quantize(ranges, repair=False), one.quantize(one.profile(rows(10)), repair=False)
    results = [model.interpret(rows(n))["y"] for model, n in zip(quantized, (5, 1), strict=True)]
    assert np.array_equal(results[0][:1], results[1])


def test_fixed_batch_profiles_in_whole_batches(tmp_path: Path) -> None:
    model = qglow.load_model(gemm(tmp_path / "m.onnx", 3))
    assert model.profile(rows(6)).shapes == {"x": (3, 4)}
    with pytest.raises(qglow.UsageError, match="batch 1 does not fit"):
        model.profile(rows(7))
    with pytest.raises(qglow.UsageError, match="batch 2 does not fit"):
        model.profile(rows(6), batch_size=2)


def test_model_that_changed_since_it_was_loaded_is_refused(tmp_path: Path) -> None:
    model = qglow.load_model(gemm(tmp_path / "m.onnx", "N"))
    gemm(tmp_path / "m.onnx", "N", outputs=2)
    with pytest.raises(qglow.ModelError, match="changed"):
        model.profile(rows(4), batch_size=4)


def test_choices_override_the_recipe(tmp_path: Path) -> None:
    model = qglow.load_model(gemm(tmp_path / "m.onnx", "N"))
    recipe = qglow.Recipe(schema="symmetric", keep_float=("op:Reshape",))
    ranges = model.profile(rows(9))
    with pytest.raises(qglow.UsageError, match="op:Reshape"):
        model.quantize(ranges, recipe)
    chosen = model.quantize(
        ranges, calibration="percentile:99.9", schema="symmetric", per_tensor=True, repair=False
    ).recipe
    assert (chosen.schema, str(chosen.calibration), chosen.per_tensor) == (
        "symmetric",
        "percentile:99.9",
        True,
    )
    report = model.quantize(ranges, keep_float="op:Gemm", repair=False).report
    assert report is not None and report.quantized == ()
    with pytest.raises(qglow.UnsupportedError, match="assert_all_quantized"):
        model.quantize(ranges, keep_float=["op:Gemm"], assert_all_quantized=True)


def test_preprocessing_of_the_profile_is_that_of_later_data(tmp_path: Path) -> None:
    model = qglow.load_model(gemm(tmp_path / "m.onnx", "N"))
    recipe = qglow.Recipe(preprocessing=qglow.Preprocessing(scale=0.5))
    quantized = model.quantize(model.profile(rows(4), recipe=recipe), repair=False)
    assert quantized.recipe.preprocessing == recipe.preprocessing


def test_saved_model_loads_as_it_was(tmp_path: Path) -> None:
    model = qglow.load_model(gemm(tmp_path / "m.onnx", "N"))
    quantized = model.quantize(model.profile(rows(9)), calibration="mse", repair=False)
    quantized.save(tmp_path / "q")
    loaded = qglow.load_quantized(tmp_path / "q")
    assert loaded.text() == quantized.text()
    assert loaded.recipe == quantized.recipe
    assert loaded.source.path.resolve() == model.path.resolve()
    assert np.array_equal(loaded.compile()(rows(1))["y"], quantized.interpret(rows(1))["y"])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "no array for input 'x'"),
        ({"x": np.float32(0.0)}, "without axes"),
        ({"x": np.zeros((2, 5), np.float32)}, r"\[5\]"),
        ({"x": np.zeros((2, 4), np.complex64)}, "complex64"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, data: dict[str, Any], said: str) -> None:
    model = qglow.load_model(gemm(tmp_path / "m.onnx", "N"))
    with pytest.raises(qglow.DataError, match=said):
        model.profile(data)


def test_outputs_come_sample_by_sample(tmp_path: Path) -> None:
    program = qglow.load_model(gemm(tmp_path / "m.onnx", 3)).compile()
    answers = dict(qglow.run_data(program, rows(5)))
    assert list(answers) == [f"arrays[{row}]" for row in range(5)]
    whole = program({"x": rows(5)["x"][:3]})["y"]
    assert np.array_equal(np.stack([answers[f"arrays[{row}]"]["y"] for row in range(3)]), whole)
    assert dict(qglow.run_data(program, rows(5), select="3:")).keys() == {"arrays[3]", "arrays[4]"}


def test_unknown_names_are_refused() -> None:
    model = qglow.load_model(DIGITS)
    for wrong in (
        lambda: model.text("object"),
        lambda: model.text("asm", isa="avx1024"),
        lambda: model.profile(CALIBRATION, engine="fast"),
        lambda: model.compile(isa="avx1024"),
        lambda: model.compile(threads=0),
        lambda: qglow.load_model(DIGITS, passes="no-such-pass"),
    ):
        with pytest.raises(qglow.UsageError):
            wrong()


def test_arrays_with_labels_are_compared(tmp_path: Path) -> None:
    model = qglow.load_model(DIGITS)
    with np.load(CALIBRATION) as archive:
        data = {name: archive[name][:30] for name in archive.files}
    comparison = qglow.compare(model.quantize(model.profile(data), repair=False), data)
    assert comparison.samples == 30 and "qglow int8" in comparison.accuracy
    with pytest.raises(qglow.ComparisonFailed):
        qglow.check_limits(comparison, qglow.Limits(sqnr_db=200.0))


def test_paths_in_place_of_what_they_hold_are_refused(tmp_path: Path) -> None:
    model = qglow.load_model(gemm(tmp_path / "m.onnx", 1))
    for given in ("p.yaml", tmp_path):
        with pytest.raises(qglow.UsageError, match="give what qglow.load_profile reads"):
            model.quantize(given)  # type: ignore[arg-type]
        with pytest.raises(qglow.UsageError, match="give what qglow.load_recipe reads"):
            model.profile(rows(2), recipe=given)  # type: ignore[arg-type]
        with pytest.raises(qglow.UsageError, match="give what qglow.load_recipe reads"):
            qglow.compare(model, rows(2), recipe=given)  # type: ignore[call-overload]
        with pytest.raises(qglow.UsageError, match="give what qglow.load_recipe reads"):
            qglow.mix_weights(model, rows(2), 1 << 20, recipe=given)  # type: ignore[arg-type]
        with pytest.raises(qglow.UsageError, match="give what qglow.load_profile reads"):
            qglow.save_profile(given, tmp_path / "p.yaml")  # type: ignore[arg-type]
