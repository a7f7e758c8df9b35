"""Nodes that run in onnxruntime inside of branches and loops, from the model's file to artefacts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, helper

import qglow
from qglow.api.evaluation import bench_hosted
from qglow.core.errors import DataError, UnsupportedError
from qglow.core.types import Array
from tests.runtimes import NATIVE_ISAS
from tests.unit.importer.test_structured import BOOL, FLOAT, INT64, START, body
from tests.unit.importer.tiny import save, session, tiny_model

WIDTH = 24
RNG = np.random.default_rng(7)
ROW = (FLOAT, [1, WIDTH])
WEIGHTS = {
    name: (RNG.standard_normal((WIDTH, WIDTH)) * WIDTH**-0.5).astype(np.float32) for name in ("v", "w")
}
node = helper.make_node


def bent(x: str, y: str, name: str) -> NodeProto:
    """A node that qglow does not know."""
    return node("FusedGemm", [x, "w"], [y], name=name, domain="com.microsoft", activation="Softsign")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A loop and, inside of it, a branch, each with an opaque node, and a third one behind them."""
    raised = body([bent("p", "a", "raise")], {}, {"a": ROW})
    turned = body([node("Neg", ["p"], ["b"])], {}, {"b": ROW})
    cell = body(
        [
            node("MatMul", ["s", "v"], ["p"], name="product"),
            node("ReduceSum", ["p"], ["sum"], keepdims=0),
            node("Greater", ["sum", "nought"], ["which"]),
            node("If", ["which"], ["c"], name="sign", then_branch=raised, else_branch=turned),
            bent("c", "d", "bend"),
            node("Add", ["d", "x"], ["next"]),
        ],
        {**START, "s": ROW},
        {"go": (BOOL, []), "next": ROW},
    )
    nodes = [
        node("ReduceSum", ["rounds"], ["count"], keepdims=0),
        node("Loop", ["count", "", "x"], ["last"], name="cell", body=cell),
        bent("last", "y", "end"),
    ]
    model = tiny_model(nodes, {"x": [1, WIDTH]}, ["y"], {**WEIGHTS, "nought": np.float32(0)}, opset=16)
    model.graph.input.append(helper.make_tensor_value_info("rounds", INT64, [1, 1]))
    model.opset_import.add(domain="com.microsoft", version=1)
    return save(model, tmp_path)


@pytest.fixture
def data() -> dict[str, Array]:
    return {
        "x": RNG.standard_normal((16, WIDTH)).astype(np.float32),
        "rounds": RNG.integers(0, 9, (16, 1)),
    }


def sample(data: dict[str, Array], number: int) -> dict[str, Array]:
    return {name: array[number : number + 1] for name, array in data.items()}


def test_float_programs_agree_with_onnxruntime(path: Path, data: dict[str, Array], tmp_path: Path) -> None:
    model, runtime = qglow.load_model(path), session(path)
    assert "3 nodes run in onnxruntime" in " ".join(model.bound)
    model.save_program(tmp_path / "float.qglow")
    programs = [model.compile(isa=isa, threads=2) for isa in (NATIVE_ISAS[0], NATIVE_ISAS[-1], "reference")]
    for run in (*programs, qglow.load(tmp_path / "float.qglow"), model.interpret):
        for number in range(8):
            feeds = sample(data, number)
            (expected,) = runtime.run(None, feeds)
            np.testing.assert_allclose(run(feeds)["y"], expected, rtol=1e-4, atol=1e-5)


def test_what_is_around_them_is_int8(path: Path, data: dict[str, Array], tmp_path: Path) -> None:
    model = qglow.load_model(path)
    profiles = [model.profile(data, engine=engine) for engine in ("compiled", "interpreter")]
    assert list(profiles[0].by_name()) == list(profiles[1].by_name())
    quantized = model.quantize(profiles[0], repair=False, check=False)
    assert any(node.name.startswith("cell.body/") for node in quantized.report.quantized)
    quantized.save(tmp_path / "q")
    exported = session(tmp_path / "q" / "model.qdq.onnx")
    loaded = qglow.load(tmp_path / "q" / "model.qglow")
    slow = quantized.compile(isa="reference")
    for number in range(8):
        feeds = sample(data, number)
        result = loaded(feeds)["y"]
        np.testing.assert_array_equal(slow(feeds)["y"], result)
        np.testing.assert_array_equal(quantized.interpret(feeds)["y"], result)
        np.testing.assert_allclose(exported.run(None, feeds)[0], result, atol=0.05)


def test_reports_count_them(path: Path, data: dict[str, Array], tmp_path: Path) -> None:
    model = qglow.load_model(path)
    quantized = model.quantize(model.profile(data), repair=False, check=False)
    time = bench_hosted(quantized)
    assert time is not None and time.nodes == 3
    quantized.save(tmp_path / "q")
    assert "of them in onnxruntime | 3" in (tmp_path / "q" / "report.md").read_text()
    report = json.loads((tmp_path / "q" / "report.json").read_text())
    assert "FusedGemm" in json.dumps(report)


def test_their_failures_reach_the_caller(path: Path) -> None:
    program = qglow.load_model(path).compile()
    wrong = {"x": np.zeros((2, WIDTH), np.float32), "rounds": np.ones((1, 1), np.int64)}
    with pytest.raises(DataError):
        program(wrong)


def test_targets_without_python_name_them(path: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="and 2 more would have to run in onnxruntime"):
        qglow.load_model(path).save_bundle(tmp_path / "bundle", isa="cortex-m4")
