"""A detector with NonMaxSuppression inside, whose outputs have a shape that data decides, in every form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import qglow
from qglow.core.errors import UnsupportedError, UsageError
from qglow.core.types import Array
from tests.unit.importer.tiny import save, session, tiny_model

RNG = np.random.default_rng(11)
SIDE, CELLS, CLASSES = 16, 16, 3


def weights(*shape: int) -> Array:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


CONSTANTS = {
    "w1": weights(8, 3, 3, 3),
    "w2": weights(16, 8, 3, 3),
    "wb": weights(4, 16, 1, 1),
    "ws": 3 * weights(CLASSES, 16, 1, 1),
    "boxes_shape": np.array([0, 4, CELLS]),
    "scores_shape": np.array([0, CLASSES, CELLS]),
    "most": np.array(16),
    "iou": np.array(0.5, np.float32),
    "least": np.array(0.55, np.float32),
    "column": np.array(2),
    "first": np.array(0),
}


def detector() -> onnx.ModelProto:
    """Two convolutions, a head of boxes and one of scores, and the boxes that NonMaxSuppression chooses."""
    node = helper.make_node
    nodes = [
        node("Conv", ["image", "w1"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2], name="first"),
        node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "w2"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2], name="second"),
        node("Relu", ["c"], ["features"]),
        node("Conv", ["features", "wb"], ["box_map"], name="box_head"),
        node("Conv", ["features", "ws"], ["score_map"], name="score_head"),
        node("Reshape", ["box_map", "boxes_shape"], ["boxes_t"]),
        node("Transpose", ["boxes_t"], ["boxes"], perm=[0, 2, 1]),
        node("Reshape", ["score_map", "scores_shape"], ["logits"]),
        node("Sigmoid", ["logits"], ["scores"]),
        node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "least"], ["chosen"], name="nms"),
        node("Gather", ["chosen", "column"], ["places"], axis=1, name="places"),
        node("Gather", ["boxes", "first"], ["of_image"], axis=0, name="of_image"),
        node("Gather", ["of_image", "places"], ["found"], axis=0, name="found"),
    ]
    model = tiny_model(nodes, {"image": [1, 3, SIDE, SIDE]}, ["found", "scores"], CONSTANTS)
    chosen = helper.make_tensor_value_info("chosen", TensorProto.INT64, None)
    model.graph.output.append(chosen)
    return model


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return save(detector(), tmp_path)


@pytest.fixture
def data() -> dict[str, Array]:
    return {"image": RNG.standard_normal((12, 3, SIDE, SIDE)).astype(np.float32)}


def names(path: Path) -> list[str]:
    return [value.name for value in onnx.load(path).graph.output]


def expected(path: Path, image: Array) -> dict[str, Array]:
    return dict(zip(names(path), session(path).run(None, {"image": image}), strict=True))


def test_a_float_detector_gives_as_many_boxes_as_data_decide(path: Path, data: dict[str, Array]) -> None:
    model = qglow.load_model(path)
    assert list(model.outputs) == ["scores"] and model.untyped_outputs == ("found", "chosen")
    assert "'nms' (NonMaxSuppression)" in " ".join(model.bound)
    program = model.compile()
    counts = set()
    for image in data["image"]:
        wanted = expected(path, image[None])
        counts.add(len(wanted["chosen"]))
        for run in (program, model.compile("reference"), model.interpret):
            given = run({"image": image[None]})
            assert list(given) == ["found", "scores", "chosen"]
            np.testing.assert_array_equal(given["chosen"], wanted["chosen"])
            np.testing.assert_allclose(given["found"], wanted["found"], rtol=1e-4, atol=1e-5)
    assert len(counts) > 2
    assert program.outputs.keys() == {"scores"} and program.untyped_outputs == ("found", "chosen")


def test_a_quantized_detector_is_the_same_in_every_form(
    path: Path, data: dict[str, Array], tmp_path: Path
) -> None:
    model = qglow.load_model(path)
    profile = model.profile(data)
    quantized = model.quantize(profile)
    report, verdict = quantized.report, quantized.verdict
    assert report is not None and verdict is not None
    assert {node.name for node in report.quantized} >= {"first", "second", "box_head", "score_head"}
    assert set(report.tail) == {"nms", "places", "found"}
    assert verdict.is_good and {output.name for output in verdict.outputs} >= {"boxes", "scores"}
    assert verdict.note.startswith("Data decides the shape of 'found', 'chosen'")
    folder = tmp_path / "q"
    assert quantized.save(folder) == ()
    text = (folder / "report.md").read_text()
    assert "nodes behind them in onnxruntime" in text and "of a shape that data decides" in text
    loaded = qglow.load_quantized(folder)
    assert loaded.outputs == quantized.outputs and loaded.untyped_outputs == ("found", "chosen")
    runs = [
        qglow.load(folder / "model.qglow"),
        qglow.load(folder / "model.qglow", trust=True),
        quantized.compile(threads=2),
        quantized.compile("reference"),
        loaded.compile(),
        loaded.interpret,
    ]
    exported = session(folder / "model.qdq.onnx")
    for image in data["image"][:4]:
        given = quantized.interpret({"image": image[None]})
        for run in runs:
            found = run({"image": image[None]})
            assert list(found) == names(path) == list(given)
            for name, array in given.items():
                np.testing.assert_array_equal(found[name], array)
        results = dict(zip(names(path), exported.run(None, {"image": image[None]}), strict=True))
        np.testing.assert_allclose(results["scores"], given["scores"], atol=0.03)
        assert abs(len(results["chosen"]) - len(given["chosen"])) <= 2


def test_samples_run_one_after_the_other(path: Path, data: dict[str, Array], tmp_path: Path) -> None:
    program = qglow.load_model(path).compile()
    answers = dict(qglow.run_data(program, data))
    assert len(answers) == len(data["image"])
    for image, outputs in zip(data["image"], answers.values(), strict=True):
        np.testing.assert_array_equal(outputs["chosen"], expected(path, image[None])["chosen"])


def test_a_comparison_looks_at_what_goes_into_the_tail(path: Path, data: dict[str, Array]) -> None:
    model = qglow.load_model(path)
    quantized = model.quantize(model.profile(data))
    comparison = qglow.compare(quantized, data)
    pairing = comparison.pairing("qglow int8", "onnxruntime float32")
    assert set(pairing.outputs) >= {"boxes", "scores"} and "found" not in pairing.outputs
    assert pairing.overall.sqnr_db > 20


def test_the_listing_of_kernels_has_the_tail_and_its_time(path: Path) -> None:
    model = qglow.load_model(path)
    assert "3 nodes in onnxruntime: NonMaxSuppression, Gather" in model.text("kernels")
    assert "us on random inputs" in model.text("kernels", measure=True)


def test_integers_at_the_ends_leave_the_tail_its_reals(path: Path, data: dict[str, Array]) -> None:
    model = qglow.load_model(path)
    quantized = model.quantize(model.profile(data), io="int8")
    assert quantized.inputs["image"].is_quantized
    given = quantized.compile()({"image": np.zeros((1, 3, SIDE, SIDE), np.int8)})
    assert given["found"].dtype == np.float32 and given["chosen"].dtype == np.int64


def test_free_dimensions_and_a_tail(data: dict[str, Array], tmp_path: Path) -> None:
    model = detector()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    path = save(model, tmp_path)
    loaded = qglow.load_model(path)
    quantized = loaded.quantize(loaded.profile(data))
    quantized.save(tmp_path / "q")
    for batch in (1, 3):
        images = data["image"][:batch]
        wanted = expected(path, images)
        np.testing.assert_array_equal(loaded.compile()({"image": images})["chosen"], wanted["chosen"])
        int8 = quantized.compile()({"image": images})
        assert int8["scores"].shape == (batch, CLASSES, CELLS)
        np.testing.assert_array_equal(quantized.interpret({"image": images})["chosen"], int8["chosen"])
        found = session(tmp_path / "q" / "model.qdq.onnx").run(["scores"], {"image": images})[0]
        np.testing.assert_allclose(found, int8["scores"], atol=0.03)
    with pytest.raises(UnsupportedError, match="takes no bounds"):
        loaded.compile(bounds={"N": 8})


def test_refusals(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsupportedError, match="'nms'"):
        qglow.load_model(path, native=True)
    program = qglow.load_model(path).compile()
    with pytest.raises(UnsupportedError, match="no array can be bound"):
        program.bind({}, {})
    qglow.load_model(path).save_program(tmp_path / "m.qglow")
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(UsageError, match="'nms', 'places', 'found' run in onnxruntime, which is missing"):
        qglow.load(tmp_path / "m.qglow")


def test_a_tail_that_was_changed_is_refused(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "m.qglow"
    qglow.load_model(path).save_program(target)
    content = target.read_bytes()
    place = content.index(b"NonMaxSuppression", content.index(b"tail.onnx"))
    target.write_bytes(content[:place] + b"MonMaxSuppression" + content[place + 17 :])
    with pytest.raises(qglow.ArtefactError, match="damaged"):
        qglow.load(target)


def best_of_those_above_zero() -> list[onnx.NodeProto]:
    """The largest of those elements that are positive, and at most 4 of them: as many as there are."""
    node = helper.make_node
    return [
        node("MatMul", ["x", "w"], ["y"], name="product"),
        node("Relu", ["y"], ["r"], name="relu"),
        node("NonZero", ["r"], ["places"], name="nonzero"),
        node("Shape", ["places"], ["shape"], name="shape"),
        node("Gather", ["shape", "one"], ["count"], name="count"),
        node("Min", ["count", "four"], ["k"], name="k"),
        node("Transpose", ["places"], ["pairs"], perm=[1, 0], name="pairs"),
        node("GatherND", ["r", "pairs"], ["elements"], name="elements"),
        node("TopK", ["elements", "k"], ["best", "index"], name="best"),
    ]


def test_a_count_that_only_the_tail_reads_is_part_of_it(tmp_path: Path) -> None:
    constants = {"w": weights(6, 6), "one": np.array([1]), "four": np.array([4])}
    nodes = best_of_those_above_zero()
    path = save(tiny_model(nodes, {"x": [2, 6]}, ["best"], constants), tmp_path)
    model = qglow.load_model(path)
    assert [node.name for node in model.graph.nodes] == ["product"]
    assert model.graph.tail is not None
    assert list(model.graph.tail.nodes) == [node.name for node in nodes[2:]]
    for scale in (-1.0, 0.3, 1.0):
        x = np.full((2, 6), scale, np.float32)
        np.testing.assert_array_equal(model.compile()({"x": x})["best"], session(path).run(None, {"x": x})[0])


def test_what_other_outputs_need_and_what_could_be_int8_stays_in_the_program(tmp_path: Path) -> None:
    node = helper.make_node
    nodes = [
        *best_of_those_above_zero(),
        # A sum over what data has chosen has a static shape again.
        node("ReduceSum", ["best"], ["sum"], keepdims=0, name="sum"),
        node("Mul", ["y", "sum"], ["scaled"], name="scale"),
        node("MatMul", ["scaled", "w"], ["again"], name="again"),
        node("NonZero", ["again"], ["chosen"], name="chosen"),
    ]
    constants = {"w": weights(6, 6), "one": np.array([1]), "four": np.array([4])}
    model = tiny_model(nodes, {"x": [2, 6]}, ["chosen", "k"], constants)
    for value in model.graph.output:
        value.type.tensor_type.elem_type = TensorProto.INT64
    path = save(model, tmp_path)
    loaded = qglow.load_model(path)
    assert loaded.graph.tail is not None and loaded.graph.tail.nodes == ("chosen",)
    assert {"product", "scale", "again"} <= {node.name for node in loaded.graph.nodes}
    assert list(loaded.outputs) == ["k"]
    data = {"x": RNG.standard_normal((8, 2, 6)).astype(np.float32)}
    quantized = loaded.quantize(loaded.profile({"x": data["x"].reshape(-1, 6)}))
    assert quantized.report is not None
    assert {"product", "again"} <= {node.name for node in quantized.report.quantized}
    for x in data["x"]:
        wanted = dict(zip(names(path), session(path).run(None, {"x": x}), strict=True))
        for name, array in loaded.compile()({"x": x}).items():
            np.testing.assert_array_equal(array, wanted[name])
        assert quantized.compile()({"x": x})["chosen"].shape[0] == 2


def test_an_order_that_only_the_tail_reads_is_part_of_it(tmp_path: Path) -> None:
    """In int8 nearly equal elements change places, which is no error of what is computed."""
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w"], ["y"], name="product"),
        node("TopK", ["y", "three"], ["best", "index"], name="best"),
        node("Gather", ["bias", "index"], ["shifts"], name="gather"),
        node("Add", ["best", "shifts"], ["shifted"], name="shift"),
        node("Greater", ["shifted", "zero"], ["above"], name="above"),
        node("NonZero", ["above"], ["chosen"], name="chosen"),
    ]
    constants = {
        "w": weights(6, 6),
        "bias": weights(6, 1)[:, 0],
        "three": np.array([3]),
        "zero": np.zeros((), np.float32),
    }
    model = tiny_model(nodes, {"x": [2, 6]}, ["chosen"], constants)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    path = save(model, tmp_path)
    loaded = qglow.load_model(path)
    assert [node.name for node in loaded.graph.nodes] == ["product"]
    assert loaded.graph.tail is not None
    assert loaded.graph.tail.nodes == ("best", "gather", "shift", "above", "chosen")
    x = RNG.standard_normal((2, 6)).astype(np.float32)
    np.testing.assert_array_equal(loaded.compile()({"x": x})["chosen"], session(path).run(None, {"x": x})[0])


def test_products_behind_an_order_stay_in_the_program(tmp_path: Path) -> None:
    node = helper.make_node
    nodes = [
        node("TopK", ["x", "three"], ["best", "index"], name="best"),
        node("MatMul", ["best", "w"], ["y"], name="product"),
        node("NonZero", ["y"], ["chosen"], name="chosen"),
    ]
    model = tiny_model(nodes, {"x": [2, 6]}, ["chosen"], {"w": weights(3, 6), "three": np.array([3])})
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    loaded = qglow.load_model(save(model, tmp_path))
    assert loaded.graph.tail is not None and loaded.graph.tail.nodes == ("chosen",)
    assert {"best", "product"} <= {node.name.removesuffix("_0") for node in loaded.graph.nodes}
