"""Every form of a matrix product runs in int8, with the bits of every ISA and of onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, helper

import qglow
from qglow.core.types import Array
from qglow.exporter import export_qdq
from qglow.graph.interpreter import Interpreter
from qglow.toolchain import CompileOptions, compile_graph
from tests.end_to_end.zoo_flow import RUNNABLE
from tests.unit.importer.tiny import assert_close, save, session, tiny_model


def product(*inputs: str, op_type: str = "MatMul", **attributes: int) -> NodeProto:
    return helper.make_node(op_type, list(inputs), ["y"], **attributes)


FORMS: dict[str, tuple[NodeProto, tuple[int, ...], str]] = {
    "a matrix on the left": (product("c", "h"), (5, 8), "Gemm"),
    "a matrix of four axes": (product("h", "c"), (1, 1, 12, 7), "Gemm"),
    "a vector": (product("h", "c"), (12,), "Gemm"),
    "a stack": (product("h", "c"), (3, 12, 7), "MatMul"),
    "a stack on the left": (product("c", "h"), (3, 5, 8), "MatMul"),
    "transB": (product("h", "c", op_type="Gemm", transB=1), (7, 12), "Gemm"),
    "transA and transB": (product("h", "c", "b", op_type="Gemm", transA=1, transB=1), (12, 8), "Gemm"),
    "computed and transA": (product("h", "h", "b", op_type="Gemm", transA=1), (1,), "MatMul"),
    "a matrix for A": (product("c", "h", "b", op_type="Gemm"), (5, 8), "Gemm"),
}


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("form", FORMS)
def test_product_is_int8(form: str, tmp_path: Path) -> None:
    node, shape, operator = FORMS[form]
    rows = helper.make_node("Reshape", ["x", "rows"], ["r"])
    nodes = [rows, helper.make_node("MatMul", ["r", "w"], ["h"]), node]
    constants = {
        "rows": np.array([8, 6]),
        "w": normal(6, 12),
        "c": normal(*shape, seed=1),
        "b": normal(12, seed=2),
    }
    used = {name: array for name, array in constants.items() if name in ("rows", "w", *node.input)}
    model = qglow.load_model(save(tiny_model(nodes, {"x": (1, 8, 6)}, ["y"], used), tmp_path))
    samples = [{"x": normal(1, 8, 6, seed=seed)} for seed in range(8)]
    float_y = model.interpret(samples[0])["y"]
    int8 = model.quantize(model.profile({"x": np.concatenate([s["x"] for s in samples])}), repair=False)
    products = [n for n in int8.graph.nodes if n.operator.name in ("Gemm", "MatMul")]
    assert [n.operator.name for n in products] == ["Gemm", operator]
    assert all(v.type.is_quantized for n in products for v in n.inputs[:2] if v is not None)
    expected = Interpreter(int8.graph).run(samples[0])["y"]
    for isa in RUNNABLE:
        found = compile_graph(int8.graph, CompileOptions(isa=isa))(samples[0])["y"]
        np.testing.assert_array_equal(found, expected, isa)
    (theirs,) = session(export_qdq(int8.graph)).run(["y"], samples[0])
    assert_close(theirs, expected, "y in onnxruntime", tolerance=1e-6)
    assert_close(expected, float_y, "y", tolerance=0.05)
