"""A model with nodes that run in onnxruntime, from its file to an artefact and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import qglow
from qglow.api.evaluation import bench_hosted
from qglow.core.errors import DataError, UsageError
from qglow.core.types import Array
from qglow.report.bench import bench_section
from tests.unit.importer.tiny import save, session, tiny_model

RNG = np.random.default_rng(5)
CONSTANTS = {
    "w": (RNG.standard_normal((8, 8)) / 3).astype(np.float32),
    "v": (RNG.standard_normal((8, 4)) / 3).astype(np.float32),
    "g": RNG.standard_normal(8).astype(np.float32),
    "same": np.eye(8, dtype=np.float32),
    "ones": np.ones((1, 2), np.float32),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A product, two opaque nodes, of which one reads indices, and another product."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node(
            "FusedGemm", ["a", "same", "g"], ["b"], name="bent", domain="com.microsoft", activation="Softsign"
        ),
        helper.make_node(
            "ScatterElements", ["b", "places", "ones"], ["c"], name="set", axis=1, reduction="add"
        ),
        helper.make_node("MatMul", ["c", "v"], ["y"], name="second"),
    ]
    model = tiny_model(nodes, {"x": [1, 8]}, ["y"], CONSTANTS, opset=18)
    model.graph.input.append(helper.make_tensor_value_info("places", TensorProto.INT64, [1, 2]))
    model.opset_import.add(domain="com.microsoft", version=1)
    return save(model, tmp_path)


@pytest.fixture
def data() -> dict[str, Array]:
    return {
        "x": RNG.standard_normal((16, 8)).astype(np.float32),
        "places": RNG.integers(0, 8, (16, 2)),
    }


def first_of(data: dict[str, Array]) -> dict[str, Array]:
    return {name: array[:1] for name, array in data.items()}


def test_all_runtimes_agree(path: Path, data: dict[str, Array], tmp_path: Path) -> None:
    model = qglow.load_model(path)
    assert "onnxruntime" in " ".join(model.bound)
    feeds = first_of(data)
    (expected,) = session(path).run(None, feeds)
    np.testing.assert_allclose(model.compile(threads=2)(feeds)["y"], expected, rtol=1e-5)
    for engine in ("compiled", "interpreter"):
        profile = model.profile(data, engine=engine)
    quantized = model.quantize(profile)
    quantized.save(tmp_path / "q")
    assert "of them in onnxruntime" in (tmp_path / "q" / "report.md").read_text()
    interpreted = quantized.interpret(feeds)["y"]
    np.testing.assert_allclose(interpreted, expected, atol=0.1)
    loaded = qglow.load(tmp_path / "q" / "model.qglow")
    for run in (loaded, quantized.compile("reference"), qglow.load_quantized(tmp_path / "q").compile()):
        np.testing.assert_array_equal(run(feeds)["y"], interpreted)
    # Optimised, since MatMulInteger has sums that saturate on some processors otherwise.
    (exported,) = session(tmp_path / "q" / "model.qdq.onnx", optimize=True).run(None, feeds)
    np.testing.assert_allclose(exported, interpreted, atol=0.05)


def test_operators_of_a_newer_set_of_another_domain_are_exported(
    data: dict[str, Array], tmp_path: Path
) -> None:
    tree = helper.make_node(
        "TreeEnsemble",
        ["a"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=1,
        aggregate_function=1,
        post_transform=0,
        tree_roots=[0],
        nodes_modes=numpy_helper.from_array(np.uint8([0])),
        nodes_featureids=[3],
        nodes_splits=numpy_helper.from_array(np.float32([0.1])),
        nodes_truenodeids=[0],
        nodes_trueleafs=[1],
        nodes_falsenodeids=[1],
        nodes_falseleafs=[1],
        leaf_targetids=[0, 0],
        leaf_weights=numpy_helper.from_array(np.float32([-2.0, 5.0])),
    )
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), tree]
    model = tiny_model(nodes, {"x": [1, 8]}, ["y"], {"w": CONSTANTS["w"]})
    model.opset_import.add(domain="ai.onnx.ml", version=5)
    path = save(model, tmp_path)
    quantized = qglow.load_model(path).quantize(qglow.load_model(path).profile({"x": data["x"]}))
    quantized.save(tmp_path / "q")
    feeds = {"x": data["x"][:1]}
    (exported,) = session(tmp_path / "q" / "model.qdq.onnx").run(None, feeds)
    np.testing.assert_array_equal(exported, quantized.interpret(feeds)["y"])


def test_the_time_in_onnxruntime_is_measured(path: Path, data: dict[str, Array]) -> None:
    model = qglow.load_model(path)
    quantized = model.quantize(model.profile(data))
    result = qglow.bench(quantized, alternations=2)
    assert set(result.hosted) == {"qglow int8", "qglow float32"}
    for time in (*result.hosted.values(), bench_hosted(quantized)):
        assert time is not None and time.nodes == 2 and 0.3 < time.share < 1.0
    (*_, told) = bench_section(result).blocks
    assert "2 nodes run in onnxruntime, " in str(told)


def test_what_a_node_refuses_is_told_and_does_no_harm(path: Path, data: dict[str, Array]) -> None:
    program = qglow.load_model(path).compile()
    feeds = first_of(data)
    before = program(feeds)["y"]
    with pytest.raises(DataError, match="ScatterElements: onnxruntime cannot run it on these inputs"):
        program({**feeds, "places": np.array([[99, 0]])})
    np.testing.assert_array_equal(program(feeds)["y"], before)
    output = np.zeros((1, 4), np.float32)
    bound = program.bind({**feeds, "places": np.array([[99, 0]])}, {"y": output})
    with pytest.raises(DataError, match="ScatterElements"):
        bound()


def test_an_artefact_names_its_nodes_where_onnxruntime_is_missing(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    qglow.load_model(path).save_program(tmp_path / "m.qglow")
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(UsageError, match="'bent', 'set' run in onnxruntime, which is missing"):
        qglow.load(tmp_path / "m.qglow")


def test_a_verdict_says_where_nothing_is_int8(tmp_path: Path) -> None:
    """What is behind a node of unknown shape runs in onnxruntime; it was said that the outputs were zero."""
    nodes = [
        helper.make_node(
            "SVMRegressor",
            ["x"],
            ["n"],
            domain="ai.onnx.ml",
            coefficients=[1.0] * 8,
            kernel_type="LINEAR",
            kernel_params=[1.0, 0.0, 1.0],
            n_supports=0,
            rho=[0.5],
        ),
        helper.make_node("MatMul", ["n", "w"], ["y"]),
    ]
    made = tiny_model(nodes, {"x": [1, 8]}, ["y"], {"w": CONSTANTS["w"][:1]})
    made.opset_import.add(domain="ai.onnx.ml", version=1)
    model = qglow.load_model(save(made, tmp_path))
    quantized = model.quantize(model.profile({"x": RNG.standard_normal((16, 1, 8)).astype(np.float32)}))
    assert quantized.verdict is not None
    assert quantized.verdict.note == "The whole model runs in onnxruntime, so that nothing of it is int8"
