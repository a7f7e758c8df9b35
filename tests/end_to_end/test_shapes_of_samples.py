"""Accuracy over samples of several shapes: each runs in a program of its own shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, helper

import qglow
from qglow.artefacts.replay import graph_at
from qglow.core.errors import DataError, UnsupportedError
from qglow.core.types import Array
from qglow.graph.graph import Graph
from qglow.quantization.choices import Choices
from qglow.recipe.schema import Recipe
from qglow.report.comparison_result import FLOAT, INT8, QDQ
from qglow.report.each_shape import PATIENCE
from tests.unit.importer.tiny import save, session, tiny_model

node = helper.make_node
WIDTH, CLASSES, OWN = 16, 4, 6
LENGTHS = (3, OWN, 9, OWN, 12, OWN, 4, OWN)


def drawn(**columns: int) -> dict[str, Array]:
    """Weights by name, of so many columns each."""
    random = np.random.default_rng(5)
    return {n: (random.normal(size=(WIDTH, count)) / 4).astype(np.float32) for n, count in columns.items()}


def attention() -> list[NodeProto]:
    """One head of attention over the tokens of x, with weights q and k."""
    return [
        node("MatMul", ["x", "q"], ["queries"]),
        node("MatMul", ["x", "k"], ["keys"]),
        node("Transpose", ["keys"], ["turned"], perm=[0, 2, 1]),
        node("MatMul", ["queries", "turned"], ["scores"]),
        node("Softmax", ["scores"], ["shares"], axis=-1),
        node("MatMul", ["shares", "x"], ["mixed"]),
    ]


@pytest.fixture
def model(tmp_path: Path) -> qglow.Model:
    """Scores of texts x [batch, tokens, 16]: attention over its tokens, then the mean of them."""
    constants = drawn(q=WIDTH, k=WIDTH, c=CLASSES)
    nodes = [
        *attention(),
        node("Relu", ["mixed"], ["r"]),
        node("MatMul", ["r", "c"], ["y"]),
        node("ReduceMean", ["y"], ["z"], axes=[1], keepdims=0),
    ]
    made = tiny_model(nodes, {"x": ("batch", "tokens", WIDTH)}, ["z", "y"], constants)
    return qglow.load_model(save(made, tmp_path))


def texts(lengths: tuple[int, ...], seed: int = 1) -> list[Array]:
    random = np.random.default_rng(seed)
    return [random.normal(size=(1, length, WIDTH)).astype(np.float32) for length in lengths]


def folder(path: Path, arrays: list[Array], labels: list[int] | None = None) -> Path:
    path.mkdir()
    for number, array in enumerate(arrays):
        label = {} if labels is None else {"label": np.array([labels[number]])}
        np.savez(path / f"{number:02}.npz", x=array, **label)
    return path


def test_texts_of_several_lengths_are_compared(model: qglow.Model, tmp_path: Path) -> None:
    arrays = texts(LENGTHS)
    assert isinstance(model.path, Path)
    given = session(model.path)
    labels = [int(np.argmax(given.run(["z"], {"x": x})[0])) for x in arrays]
    data = folder(tmp_path / "texts", arrays, labels)
    quantized = model.quantize(model.profile(data))
    compared = qglow.compare(quantized, data)
    assert compared.samples == len(LENGTHS)
    assert compared.accuracy[FLOAT].top1 == 1.0 and compared.accuracy[INT8].samples == len(LENGTHS)
    program, power, error = quantized.compile(), 0.0, 0.0
    for x in arrays:
        wanted, found = given.run(["z"], {"x": x})[0], program({"x": x})["z"]
        power, error = power + float((wanted**2).sum()), error + float(((found - wanted) ** 2).sum())
    measured = compared.pairings[0].outputs["z"].sqnr_db
    assert measured == pytest.approx(10 * np.log10(power / error), abs=1e-3)
    assert compared.pairing(INT8, "onnxruntime QDQ").overall.sqnr_db > 45


def test_one_program_takes_texts_of_many_lengths(
    model: qglow.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program for each of a hundred lengths would take minutes of large models."""
    lengths = (OWN, *range(3, 20), 40, 5)
    data = folder(tmp_path / "texts", texts(lengths))
    quantized = model.quantize(model.profile(folder(tmp_path / "calibration", texts((OWN, OWN)))))
    made: list[object] = []

    def counted(*arguments: Any, **options: Any) -> Graph:
        made.append(arguments)
        return graph_at(*arguments, **options)

    monkeypatch.setattr("qglow.artefacts.open_shapes.graph_at", counted)
    found = qglow.compare(quantized, data)
    assert 0 < len(made) <= PATIENCE
    monkeypatch.setattr("qglow.report.each_shape.PATIENCE", 100)
    single = qglow.compare(quantized, data)
    assert len(made) > 2 * PATIENCE
    assert found.samples == single.samples == len(lengths)
    assert found.pairing(INT8, FLOAT) == single.pairing(INT8, FLOAT)
    exported = [one.pairing(QDQ, FLOAT).overall.sqnr_db for one in (found, single)]
    assert exported[0] == pytest.approx(exported[1], abs=0.01)


def test_lengths_that_no_program_bounds_have_their_own(
    model: qglow.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*arguments: object) -> None:
        raise UnsupportedError("no bounds")

    monkeypatch.setattr("qglow.artefacts.open_shapes.bounded_executable", refused)
    data = folder(tmp_path / "texts", texts((OWN, *range(3, 14))))
    quantized = model.quantize(model.profile(folder(tmp_path / "calibration", texts((OWN, OWN)))))
    assert qglow.compare(quantized, data).samples == 12


def test_samples_of_the_profiles_shape_are_compared_as_ever(model: qglow.Model, tmp_path: Path) -> None:
    data = folder(tmp_path / "texts", texts((OWN,) * 6))
    quantized = model.quantize(model.profile(data))
    bound = model.at({"x": (1, OWN, WIDTH)})
    one = bound.quantize(bound.profile(data))
    free, fixed = (qglow.compare(made, data) for made in (quantized, one))
    assert free.pairings[0].overall == fixed.pairings[0].overall
    assert free.samples == fixed.samples == 6


def test_a_batch_of_the_profile_stays_one(model: qglow.Model, tmp_path: Path) -> None:
    arrays = texts((OWN,) * 7)
    assert isinstance(model.path, Path)
    given = session(model.path)
    labels = [int(np.argmax(given.run(["z"], {"x": x})[0])) for x in arrays]
    data = folder(tmp_path / "texts", arrays, labels)
    four = model.at({"x": (4, OWN, WIDTH)})
    quantized = four.quantize(four.profile(data))
    assert quantized.inputs["x"].shape == (4, OWN, WIDTH)
    compared = qglow.compare(quantized, data)
    assert compared.samples == compared.accuracy[FLOAT].samples == 7
    assert compared.accuracy[FLOAT].top1 == 1.0


def test_layers_are_measured_in_the_profiles_shape(model: qglow.Model, tmp_path: Path) -> None:
    data = folder(tmp_path / "texts", texts(LENGTHS))
    quantized = model.quantize(model.profile(data))
    assert qglow.compare_layers(quantized, data).samples == LENGTHS.count(OWN)
    with pytest.raises(DataError, match=r"no sample has the shapes of the profile, x=\[6, 16\]"):
        qglow.compare_layers(quantized, folder(tmp_path / "others", texts((4, 5))))


def test_a_metric_of_all_samples_wants_one_shape(model: qglow.Model, tmp_path: Path) -> None:
    data = folder(tmp_path / "texts", texts(LENGTHS))
    quantized = model.quantize(model.profile(data))

    def largest(outputs: dict[str, Array]) -> float:
        return max(float(np.max(array)) for array in outputs.values())

    with pytest.raises(DataError, match=r"output 'y' at once, but these have shapes \[3, 4\] and \[4, 4\]"):
        qglow.compare(quantized, data, metric=largest)


def test_a_sample_that_the_model_does_not_take(model: qglow.Model, tmp_path: Path) -> None:
    quantized = model.quantize(model.profile(folder(tmp_path / "texts", texts(LENGTHS))))
    with pytest.raises(DataError, match=r"has shape \[6, 8\], the model takes \[\?, 16\]"):
        qglow.compare(quantized, {"x": np.zeros((2, OWN, 8), np.float32)})


def test_a_check_takes_texts_of_several_lengths(model: qglow.Model, tmp_path: Path) -> None:
    folder(tmp_path / "texts", texts(LENGTHS))
    baseline = tmp_path / "accuracy.yaml"
    baseline.write_text(
        "models:\n  texts:\n    model: tiny.onnx\n    calibration: texts\n    data: texts\n    metric: sqnr\n"
        "    tolerance: 1.0\n",
        encoding="utf-8",
    )
    (outcome,) = qglow.check_baseline(baseline).outcomes
    assert outcome.measured is not None and outcome.measured.value > 25


def test_a_quantized_directory_runs_samples_of_several_shapes(model: qglow.Model, tmp_path: Path) -> None:
    arrays = texts(LENGTHS)
    data = folder(tmp_path / "texts", arrays)
    model.quantize(model.profile(data)).save(tmp_path / "int8")
    quantized = qglow.load_quantized(tmp_path / "int8")
    program = quantized.compile()
    found = [outputs["z"] for _, outputs in qglow.run_data(program, data)]
    wanted = [program({"x": x})["z"][0] for x in arrays]
    assert np.array(found).tobytes() == np.array(wanted).tobytes()
    assert isinstance(model.path, Path)
    model.path.unlink()  # the directory's own shape needs no other file
    own = folder(tmp_path / "own", texts((OWN, OWN)))
    alone = qglow.load_quantized(tmp_path / "int8").compile()
    assert len(list(qglow.run_data(alone, own))) == 2
    with pytest.raises(
        DataError, match=r"the model takes .*; other shapes need the float model: cannot read"
    ):
        list(qglow.run_data(alone, data))


def test_a_model_without_inputs_takes_no_data(model: qglow.Model) -> None:
    x = texts((OWN,))[0]
    constant = qglow.load_model(model.path, values={"x": x})
    with pytest.raises(DataError, match="no inputs that data could be for"):
        constant.profile({"x": x[None]})


def test_what_is_light_at_some_lengths_alone_keeps_its_range(tmp_path: Path) -> None:
    """A sum of two products behind a mean over tokens: many of them make all else look large beside it."""
    constants = drawn(q=WIDTH, k=WIDTH, a=40, b=40)
    nodes = [
        *attention(),
        node("ReduceMean", ["mixed"], ["mean"], axes=[1], keepdims=0),
        node("MatMul", ["mean", "a"], ["first"]),
        node("MatMul", ["mean", "b"], ["second"]),
        node("Add", ["first", "second"], ["y"]),
    ]
    made = tiny_model(nodes, {"x": ("batch", "tokens", WIDTH)}, ["y"], constants)
    model = qglow.load_model(save(made, tmp_path))
    calibrations = [
        {node.name: choices.of_node(node).calibration for node in graph.nodes}
        for graph in (model.at({"x": (1, length, WIDTH)}).graph for length in (OWN, 600))
        for choices in (Choices.of(graph, Recipe()),)
    ]
    assert calibrations[0] == calibrations[1]
