"""Models with free dimensions: one program for each set of shapes."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import qglow
from qglow.artefacts.replay import graph_at
from qglow.cli.main import main
from qglow.core.types import Array
from qglow.toolchain import undecided
from tests.unit.importer.tiny import session
from tests.unit.toolchain.dynamic_models import (
    image_model,
    pair_model,
    running_sum_model,
    sequence_model,
    shared_bias_model,
    twins_model,
)

LENGTHS = (7, 12, 16, 1, 31)


def sequence(length: int, batch: int = 1) -> dict[str, Array]:
    rng = np.random.default_rng(length)
    return {"x": rng.standard_normal((batch, 4, length)).astype(np.float32)}


def test_float_programs_of_all_lengths_are_those_of_onnxruntime(tmp_path: Path) -> None:
    path = sequence_model(tmp_path)
    model = qglow.load_model(path)
    program, reference = model.compile(threads=1), session(path)
    for inputs in (*map(sequence, LENGTHS), sequence(12, 3)):
        (expected,) = reference.run(None, inputs)
        np.testing.assert_allclose(program(inputs)["y"], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(model.interpret(inputs)["y"], expected, rtol=1e-4, atol=1e-5)
    assert [shapes["x"] for shapes in program.programs] == [
        *((1, 4, length) for length in LENGTHS),
        (3, 4, 12),
    ]


def test_images_of_all_sizes(tmp_path: Path) -> None:
    path = image_model(tmp_path)
    program, reference = qglow.load_model(path).compile(threads=1), session(path)
    for size in ((16, 16), (9, 21), (16, 16)):
        x = np.random.default_rng(size[0]).standard_normal((1, 3, *size)).astype(np.float32)
        np.testing.assert_allclose(program({"x": x})["y"], reference.run(None, {"x": x})[0], atol=1e-5)
    assert len(program.programs) == 2


def test_dimensions_and_what_needs_shapes(tmp_path: Path) -> None:
    model = qglow.load_model(sequence_model(tmp_path))
    assert model.dimensions == {"x": ("N", 4, "length")}
    assert "new shapes" in model.bound[0]
    for use in (
        lambda: model.graph,
        lambda: model.shapes,
        lambda: model.inputs,
        lambda: model.text(),
        lambda: model.compile(threads=1).outputs,
    ):
        with pytest.raises(qglow.UnboundError, match=r"'x' has shape \[N, 4, length\]; bind its dim"):
            use()
    bound = model.at({"x": (1, 4, 12)})
    assert bound.shapes == {"x": (1, 4, 12)}
    with pytest.raises(qglow.DataError, match=r"the program wants \(1, 4, 12\)"):
        bound.compile(threads=1)(sequence(7))
    with pytest.raises(qglow.UsageError, match=r"\[N, 4, length\]"):
        model.at({"x": (1, 5, 12)})
    with pytest.raises(qglow.UsageError, match="did you mean 'x'"):
        model.at({"z": (1, 5, 12)})


def test_batch_that_is_free_takes_any_size(tmp_path: Path) -> None:
    path = sequence_model(tmp_path)
    whole = sequence(12, 4)["x"]
    bound = qglow.load_model(path).at({"x": (4, 4, 12)}).compile(threads=1)({"x": whole})["y"]
    program = qglow.load_model(path).compile(threads=1)
    each = np.concatenate([program({"x": whole[i : i + 1]})["y"] for i in range(4)])
    np.testing.assert_array_equal(bound, each)


def test_symbol_of_two_inputs_has_one_size(tmp_path: Path) -> None:
    model = qglow.load_model(pair_model(tmp_path))
    program, x = model.compile(threads=1), np.ones((1, 5), np.float32)
    assert program({"a": x, "b": x})["y"].sum() == 10
    for run in (program, model.interpret):
        with pytest.raises(qglow.DataError, match="b=1,4 binds length to 4, that of 'a' to 5"):
            run({"a": x, "b": x[:, :4]})
    with pytest.raises(qglow.DataError, match="inputs a given, a, b wanted"):
        program({"a": x})
    assert model.at({"a": (1, 6)}).shapes == {"a": (1, 6), "b": (1, 6)}


def test_programs_are_prepared_and_kept_within_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undecided, "KEPT", 2)
    program = qglow.load_model(pair_model(tmp_path)).compile(threads=1)
    for length in (3, 4, 5):
        program.prepare({"a": (1, length), "b": (1, length)})
    assert [shapes["a"] for shapes in program.programs] == [(1, 4), (1, 5)]
    with pytest.raises(qglow.DataError, match="binds length"):
        program.prepare({"a": (1, 4), "b": (1, 5)})
    monkeypatch.setattr(undecided, "read_model", None)
    x = np.ones((1, 4), np.float32)
    assert program({"a": x, "b": x})["y"].sum() == 8


def test_threads_share_programs(tmp_path: Path) -> None:
    program = qglow.load_model(sequence_model(tmp_path)).compile(threads=1)
    expected = {length: program(sequence(length))["y"] for length in (5, 6)}
    fresh = qglow.load_model(sequence_model(tmp_path)).compile(threads=1)
    found: dict[int, Array] = {}

    def call(number: int) -> None:
        found[number] = fresh(sequence(5 + number % 2))["y"]

    workers = [threading.Thread(target=call, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for number in range(6):
        np.testing.assert_array_equal(found[number], expected[5 + number % 2])
    assert len(fresh.programs) == 2


def test_int8_has_the_same_parameters_and_weights_in_all_shapes(tmp_path: Path) -> None:
    path, folder = sequence_model(tmp_path), tmp_path / "data"
    folder.mkdir()
    for length in (8, 12, 20):
        np.save(folder / f"{length}.npy", sequence(length, 2)["x"])
    model = qglow.load_model(path)
    quantized = model.quantize(model.profile(folder), repair=False)
    program, reference = quantized.compile(threads=1), session(path)
    known = {value.name: value for value in quantized.graph.values()}
    for length in LENGTHS:
        inputs = sequence(length, 2)
        found = program(inputs)["y"]
        expected = reference.run(None, inputs)[0]
        assert 10 * np.log10(np.square(expected).sum() / np.square(found - expected).sum()) > 20
        np.testing.assert_array_equal(found, quantized.interpret(inputs)["y"])
        each = [program({"x": row[None]})["y"] for row in inputs["x"]]
        np.testing.assert_array_equal(found, np.concatenate(each))
        graph = graph_at(quantized._parts, {"x": (2, 4, length)})
        same = [value for value in graph.values() if value.name in known]
        assert sum(value.type.is_quantized for value in same) > 5
        for value in same:
            assert value.type.quantization == known[value.name].type.quantization
            if value.is_constant and value.type.is_quantized:
                np.testing.assert_array_equal(value.data, known[value.name].data)


def test_int8_of_values_that_are_computed_alike(tmp_path: Path) -> None:
    path = twins_model(tmp_path)
    samples = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    model = qglow.load_model(path)
    program = model.quantize(model.profile({"x": samples}), repair=False).compile(threads=1)
    both = program({"x": samples[:2]})
    for name in ("y", "z"):
        each = [program({"x": row[None]})[name] for row in samples[:2]]
        np.testing.assert_array_equal(both[name], np.concatenate(each))


def test_float_layers_share_constants_in_all_shapes(tmp_path: Path) -> None:
    """Each got a copy of its bias under the same name."""
    path = shared_bias_model(tmp_path)
    x = np.random.default_rng(0).standard_normal((6, 8, 12)).astype(np.float32)
    model = qglow.load_model(path)
    program = model.quantize(model.profile({"x": x}), dynamic=True).compile(threads=1)
    found = program({"x": x[:2, :, :9]})["y"]
    np.testing.assert_allclose(found, session(path).run(None, {"x": x[:2, :, :9]})[0], rtol=1e-4, atol=1e-5)


def test_int8_along_a_free_axis(tmp_path: Path) -> None:
    samples = np.random.default_rng(0).standard_normal(4).astype(np.float32)
    model = qglow.load_model(running_sum_model(tmp_path))
    program = model.quantize(model.profile({"x": samples}), repair=False).compile(threads=1)
    found = program({"x": samples[:2]})["y"]
    np.testing.assert_allclose(found, np.cumsum(np.abs(samples[:2])), atol=0.05)


def test_run_takes_samples_of_different_shapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, folder, out = sequence_model(tmp_path), tmp_path / "data", tmp_path / "out.npz"
    folder.mkdir()
    for length in (5, 9):
        np.save(folder / f"{length}.npy", sequence(length)["x"])
    assert main(["run", str(path), "--data", str(folder)]) == 0
    told = capsys.readouterr().out
    assert "y [5, 5]" in told and "y [9, 5]" in told
    command = ["run", str(path), "--data", str(folder), "-o", str(out)]
    assert main(command) == 0
    with np.load(out) as written:
        assert sorted(array.shape for array in written.values()) == [(5, 5), (9, 5)]
    assert main([*command, "--select", "1:2"]) == 0
    (expected,) = session(path).run(None, sequence(9))
    np.testing.assert_allclose(np.load(out)["y"], expected, rtol=1e-4, atol=1e-5)
