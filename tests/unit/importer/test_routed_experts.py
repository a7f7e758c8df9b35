"""Experts of mixtures that an exporter wrote one after the other, by NonZero for each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

import qglow
from qglow.core.types import Array
from tests.unit.importer.test_blocks import near
from tests.unit.importer.tiny import save, session, tiny_model

EXPERTS, K, WIDTH, HIDDEN = 3, 2, 8, 12
NUMBERS = {
    "experts": np.array(EXPERTS),
    "off_on": np.array([0, 1]),
    "k": np.array([K]),
    "minus": np.array([-1]),
    "row": np.array([-1, WIDTH]),
    "column": np.array([-1, 1]),
    "axis0": np.array([0]),
    "axis1": np.array([1]),
    "axis2": np.array([2]),
    "halves": np.array([1, 1]),
    "ranks": np.array(K),
    "shape": np.array([0, WIDTH]),
    **{f"number{e}": np.array(e) for e in range(EXPERTS)},
}
node = helper.make_node


def expert(e: int, rows: str, plain: bool) -> list[NodeProto]:
    """A layer with a bias, SiLU, and another layer; as products or as Gemm."""
    if plain:
        first = [
            node("MatMul", [rows, f"a{e}"], [f"p{e}"]),
            node("Add", [f"b{e}", f"p{e}"], [f"h{e}"]),
        ]
    else:
        first = [node("Gemm", [rows, f"a{e}", f"b{e}"], [f"h{e}"], transB=1)]
    return [
        *first,
        node("Sigmoid", [f"h{e}"], [f"s{e}"]),
        node("Mul", [f"h{e}", f"s{e}"], [f"t{e}"]),
        node("MatMul", [f"t{e}", f"c{e}"], [f"r{e}"]),
    ]


def routed(e: int, base: str, end: str, adds: bool, plain: bool) -> list[NodeProto]:
    """The rows of an expert, what it makes of them, and their sum with what was added up before."""
    found = [
        node("Gather", ["mask", f"number{e}"], [f"own{e}"], axis=0),
        node("Cast", [f"own{e}"], [f"chosen{e}"], to=TensorProto.BOOL),
        node("NonZero", [f"chosen{e}"], [f"places{e}"]),
        node("Transpose", [f"places{e}"], [f"pairs{e}"], perm=[1, 0]),
        node("Split", [f"pairs{e}", "halves"], [f"first{e}", f"second{e}"], axis=1),
        node("Squeeze", [f"first{e}", "axis1"], [f"rank{e}"]),
        node("Squeeze", [f"second{e}", "axis1"], [f"token{e}"]),
        node("Gather", ["single", f"token{e}"], [f"taken{e}"], axis=1),
        node("Reshape", [f"taken{e}", "row"], [f"rows{e}"]),
        *expert(e, f"rows{e}", plain),
        node("Unsqueeze", ["shares", "axis2"], [f"apart{e}"]),
        node("Flatten", [f"apart{e}"], [f"flat{e}"], axis=2),
        node("Mul", [f"token{e}", "ranks"], [f"start{e}"]),
        node("Add", [f"rank{e}", f"start{e}"], [f"place{e}"]),
        node("Gather", [f"flat{e}", f"place{e}"], [f"share{e}"], axis=0),
        node("Reshape", [f"share{e}", "column"], [f"factor{e}"]),
        node("Mul", [f"r{e}", f"factor{e}"], [f"w{e}"]),
        node("Shape", [f"w{e}"], [f"size{e}"]),
        node("Unsqueeze", [f"token{e}", "axis1"], [f"tall{e}"]),
        node("Expand", [f"tall{e}", f"size{e}"], [f"index{e}"]),
    ]
    if adds:
        return [*found, node("ScatterElements", [base, f"index{e}", f"w{e}"], [end], axis=0, reduction="add")]
    return [
        *found,
        node("Shape", [base], [f"whole{e}"]),
        node("ConstantOfShape", [f"whole{e}"], [f"none{e}"]),
        node("ScatterElements", [f"none{e}", f"index{e}", f"w{e}"], [f"new{e}"], axis=0),
        node("Add", [base, f"new{e}"], [end]),
    ]


def model(adds: bool = False, plain: bool = False, odd: bool = False) -> ModelProto:
    """A mixture on rows [T, WIDTH]. odd: whether one expert has another activation than the others."""
    random = np.random.default_rng(2)
    constants: dict[str, Array] = {
        **NUMBERS,
        "route": random.normal(size=(WIDTH, EXPERTS)).astype(np.float32),
    }
    for e in range(EXPERTS):
        constants[f"a{e}"] = random.normal(size=(WIDTH, HIDDEN) if plain else (HIDDEN, WIDTH)).astype(
            np.float32
        )
        constants[f"b{e}"] = random.normal(size=HIDDEN).astype(np.float32)
        constants[f"c{e}"] = random.normal(size=(HIDDEN, WIDTH)).astype(np.float32)
    nodes = [
        node("MatMul", ["x", "route"], ["scores"], name="router"),
        node("Softmax", ["scores"], ["probabilities"], axis=1),
        node("TopK", ["probabilities", "k"], ["shares", "indices"], axis=-1),
        node("OneHot", ["indices", "experts", "off_on"], ["hot"], axis=-1),
        node("Transpose", ["hot"], ["mask"], perm=[2, 1, 0]),
        node("Unsqueeze", ["x", "axis0"], ["single"]),
        node("Shape", ["x"], ["shape_of_all"]),
        node("ConstantOfShape", ["shape_of_all"], ["sum0"]),
    ]
    for e in range(EXPERTS):
        nodes += routed(e, f"sum{e}", f"sum{e + 1}", adds, plain)
    nodes.append(node("Identity", [f"sum{EXPERTS}"], ["y"]))
    if odd:
        next(n for n in nodes if n.output[0] == "s1").op_type = "Tanh"
    return tiny_model(nodes, {"x": ("T", WIDTH)}, ["y"], constants, opset=18)


def rows(count: int) -> dict[str, Array]:
    return {"x": np.random.default_rng(count).normal(size=(count, WIDTH)).astype(np.float32)}


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("plain", [False, True])
def test_rows_meet_the_matrices_of_their_experts(adds: bool, plain: bool, tmp_path: Path) -> None:
    """No node is left to onnxruntime, rows may be any number, and one row leaves an expert without any."""
    made = model(adds, plain)
    source = qglow.load_model(save(made, tmp_path), native=True)
    products = [n for n in source.at({"x": (5, WIDTH)}).graph.nodes if n.operator.name == "ExpertGemm"]
    assert len(products) == 2
    bounded = source.compile(bounds={"T": 16})
    for count in (1, 2, 9):
        given = rows(count)
        near(bounded(given)["y"], session(made).run(None, given)[0])


def test_experts_that_differ_stay_as_they_are(tmp_path: Path) -> None:
    made = model(odd=True)
    given = rows(9)
    found = qglow.load_model(save(made, tmp_path)).compile()(given)["y"]
    near(found, session(made).run(None, given)[0])
