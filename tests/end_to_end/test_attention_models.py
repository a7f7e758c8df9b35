"""The policy for attention: models as exporters write them, real ones, and those without attention."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper

import qglow
from qglow import Array, Model, QuantizedModel
from qglow.exporter import export_qdq
from qglow.graph.interpreter import Interpreter
from qglow.graph.text import print_graph
from qglow.quantization.attention_region import Role, attention_region
from qglow.recipe.schema import Recipe
from qglow.toolchain import CompileOptions, compile_graph
from tests.end_to_end.zoo_flow import MODELS, RUNNABLE, float_graph, quantized, recipe
from tests.unit.importer.tiny import save, session, tiny_model
from tests.zoo import wild_path

LENGTH, WIDTH, HEADS = 6, 16, 2
DEPTH = WIDTH // HEADS
node = helper.make_node


def drawn(*shape: int, seed: int = 0) -> Array:
    return (np.random.default_rng(seed).normal(size=shape) / 4.0).astype(np.float32)


def projections(x: str, shared: bool = False) -> list[NodeProto]:
    weights = ("wq", "sk", "sv") if shared else ("wq", "wk", "wv")
    return [node("MatMul", [x, w], [name]) for name, w in zip("qkv", weights, strict=True)]


def attention_operator() -> list[NodeProto]:
    """ONNX's operator on heads side by side, with shared heads and a causal mask."""
    kinds = {"q_num_heads": HEADS, "kv_num_heads": 1, "is_causal": 1}
    return [*projections("n", shared=True), node("Attention", ["q", "k", "v"], ["mixed"], **kinds)]


def heads_of(name: str, perm: list[int]) -> list[NodeProto]:
    return [
        node("Reshape", [name, "heads"], [f"{name}1"]),
        node("Transpose", [f"{name}1"], [f"{name}2"], perm=perm),
    ]


def written_out() -> list[NodeProto]:
    """Operators of which the factor comes before the product, and a mask that Where chooses."""
    return [
        *projections("n"),
        *heads_of("q", [0, 2, 1, 3]),
        *heads_of("k", [0, 2, 3, 1]),
        *heads_of("v", [0, 2, 1, 3]),
        node("Mul", ["q2", "root"], ["qs"]),
        node("Mul", ["k2", "root"], ["ks"]),
        node("MatMul", ["qs", "ks"], ["scores"]),
        node("Where", ["allowed", "scores", "low"], ["masked"]),
        node("Softmax", ["masked"], ["shares"], axis=-1),
        node("MatMul", ["shares", "v2"], ["mixed1"]),
        node("Transpose", ["mixed1"], ["mixed2"], perm=[0, 2, 1, 3]),
        node("Reshape", ["mixed2", "joined"], ["mixed"]),
    ]


def split_products() -> list[NodeProto]:
    """One product for queries, keys and values, cut apart; a softmax written as its definition."""
    return [
        node("MatMul", ["n", "wqkv"], ["qkv"]),
        node("Split", ["qkv"], ["q", "k", "v"], axis=2, num_outputs=3),
        *heads_of("q", [0, 2, 1, 3]),
        *heads_of("k", [0, 2, 3, 1]),
        *heads_of("v", [0, 2, 1, 3]),
        node("MatMul", ["q2", "k2"], ["scores"]),
        node("Div", ["scores", "root"], ["scaled"]),
        node("Add", ["scaled", "bias"], ["masked"]),
        node("Softmax", ["masked"], ["shares"], axis=-1),
        node("Identity", ["shares"], ["kept"]),
        node("MatMul", ["kept", "v2"], ["mixed1"]),
        node("Transpose", ["mixed1"], ["mixed2"], perm=[0, 2, 1, 3]),
        node("Reshape", ["mixed2", "joined"], ["mixed"]),
    ]


NORMS = {
    "raised": [node("RMSNormalization", ["x", "g"], ["n"], axis=-1)],
    "pieces": [
        node("Pow", ["x", "two"], ["x2"]),
        node("ReduceMean", ["x2", "last"], ["m"], keepdims=1),
        node("Add", ["m", "tiny"], ["me"]),
        node("Sqrt", ["me"], ["r"]),
        node("Reciprocal", ["r"], ["i"]),
        node("Mul", ["x", "i"], ["xi"]),
        node("Mul", ["g", "xi"], ["n"]),
    ],
    "layer": [node("LayerNormalization", ["x", "g"], ["n"], axis=-1)],
}
BLOCKS = {"operator": attention_operator, "written out": written_out, "split": split_products}


def block(kind: str, norm: str, folder: Path) -> Model:
    """A block with a norm before it, a residual sum, and a gated feed-forward layer with another sum."""
    nodes = [
        *NORMS[norm],
        *BLOCKS[kind](),
        node("MatMul", ["mixed", "wo"], ["out"]),
        node("Add", ["x", "out"], ["y1"]),
        node("MatMul", ["y1", "wup"], ["up"]),
        node("MatMul", ["y1", "wgate"], ["gate"]),
        node("Sigmoid", ["gate"], ["open"]),
        node("Mul", ["gate", "open"], ["silu"]),
        node("Mul", ["silu", "up"], ["inner"]),
        node("MatMul", ["inner", "wdown"], ["down"]),
        node("Add", ["down", "y1"], ["y"]),
    ]
    constants = {
        **{f"w{name}": drawn(WIDTH, WIDTH, seed=i) for i, name in enumerate("qkvo")},
        "sk": drawn(WIDTH, DEPTH, seed=5),
        "sv": drawn(WIDTH, DEPTH, seed=6),
        "wqkv": drawn(WIDTH, 3 * WIDTH, seed=7),
        "wup": drawn(WIDTH, 24, seed=8),
        "wgate": drawn(WIDTH, 24, seed=9),
        "wdown": drawn(24, WIDTH, seed=10),
        "g": 1.0 + drawn(WIDTH, seed=11),
        "heads": np.array([0, 0, HEADS, DEPTH]),
        "joined": np.array([0, 0, WIDTH]),
        "root": np.float32(DEPTH**-0.25),
        "allowed": np.tri(LENGTH, dtype=bool),
        "low": np.float32(-1e9),
        "bias": np.triu(np.full((LENGTH, LENGTH), -1e4, np.float32), 1),
        "two": np.float32(2.0),
        "last": np.array([-1]),
        "tiny": np.float32(1e-5),
    }
    used = {name for each in nodes for name in each.input}
    constants = {name: array for name, array in constants.items() if name in used}
    made = tiny_model(nodes, {"x": [1, LENGTH, WIDTH]}, ["y"], constants, opset=23)
    return qglow.load_model(save(made, folder))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", BLOCKS)
def test_a_block_is_recognised_as_exporters_write_it(kind: str, norm: str, tmp_path: Path) -> None:
    model = block(kind, norm, tmp_path)
    graph = model.graph
    region = attention_region(graph)
    roles = {value.name: role for each, role in region.roles.items() for value in each.outputs}
    assert roles["y1"] is roles["y"] is Role.SUM
    assert roles["inner"] is Role.GATE
    products = [role for role in roles.values() if role in (Role.SCORES, Role.MIXTURE, Role.PRODUCT)]
    assert products == [Role.SCORES, Role.MIXTURE]
    rest = [n for n in graph.nodes if n not in region.roles and n not in region.products]
    assert not [n for n in rest if n.operator.is_light or n.operator.sums_products], rest
    int8 = model.quantize(model.profile({"x": drawn(16, LENGTH, WIDTH, seed=12)}), repair=False)
    kept = {each.name: each.reason for each in int8.report.float_nodes}
    assert not {n.name for n in region.products} & kept.keys(), kept
    assert sum(reason.startswith("transformer:") for reason in kept.values()) >= 3
    wide = [n for n in int8.graph.nodes if any(_is_wide(v) for v in n.inputs) and n.operator.accumulate]
    assert len(wide) == 1, "the down projection alone reads int16"


def _is_wide(value: object) -> bool:
    quantization = getattr(getattr(value, "type", None), "quantization", None)
    return quantization is not None and quantization.is_wide


@pytest.mark.parametrize("name", MODELS)
def test_networks_of_convolutions_have_no_attention(name: str) -> None:
    assert not attention_region(float_graph(name, MODELS[name].batches[0])).roles


@pytest.mark.parametrize("name", ["digits", "cifar10_resnet20", "mlkws_ds_cnn_l", "mobilenetv2_tin202"])
def test_their_int8_graphs_are_the_same_under_both_schemes(name: str) -> None:
    batch = MODELS[name].batches[0]
    graphs = [
        print_graph(quantized(name, batch, replace(recipe(name), scheme=scheme)).graph)
        for scheme in ("auto", "cnn")
    ]
    assert graphs[0] == graphs[1]


def made_by_default(model: Model, calibration: dict[str, Array]) -> QuantizedModel:
    return model.quantize(model.profile(calibration))


def test_an_encoder_keeps_its_answers() -> None:
    path, data = wild_path("bert_agnews.onnx"), wild_path("agnews.npz")
    with np.load(data) as arrays:
        halves = [
            {name: arrays[prefix + name].astype(np.int64) for name in ("input_ids", "attention_mask")}
            for prefix in ("calib_", "")
        ]
        labels = arrays["label"][:300]
    calibration, fed = ({**half, "token_type_ids": np.zeros_like(half["input_ids"])} for half in halves)
    shapes = {name: (1, array.shape[1]) for name, array in fed.items()}
    model = qglow.load_model(path, shapes=shapes)
    int8 = made_by_default(model, {name: array[:64] for name, array in calibration.items()})
    samples = [{name: array[i : i + 1] for name, array in fed.items()} for i in range(len(labels))]
    answers = [
        [int(np.argmax(program(sample)["logits"])) for sample in samples]
        for program in (int8.compile(), model.compile())
    ]
    accuracy = [100.0 * float(np.mean(np.array(found) == labels)) for found in answers]
    assert accuracy[0] >= accuracy[1] - 0.3
    assert np.mean(np.array(answers[0]) == np.array(answers[1])) >= 0.99


def test_a_table_by_row_has_the_same_bits_everywhere(tmp_path: Path) -> None:
    nodes = [node("Gather", ["table", "x"], ["e"]), node("Mul", ["e", "g"], ["y"])]
    reach = np.logspace(-3, 1, 50, dtype=np.float32)[:, None]
    constants = {"table": drawn(50, WIDTH) * reach, "g": drawn(WIDTH)}
    built = tiny_model(nodes, {"x": [1, LENGTH]}, ["y"], constants, input_type=TensorProto.INT64)
    model = qglow.load_model(save(built, tmp_path))
    tokens = np.random.default_rng(0).integers(0, 50, (16, LENGTH))
    int8 = model.quantize(model.profile({"x": tokens}), scheme="transformer", repair=False)
    assert any(value.type.is_quantized for value in int8.graph.constants())
    fed = {"x": tokens[:1]}
    expected = Interpreter(int8.graph).run(fed)["y"]
    for isa in RUNNABLE:
        program = compile_graph(int8.graph, CompileOptions(isa=isa))
        np.testing.assert_array_equal(program(fed)["y"], expected, isa)
    (exported,) = session(export_qdq(int8.graph)).run(["y"], fed)
    np.testing.assert_array_equal(exported, expected)
    wanted = model.compile()(fed)["y"]
    largest = np.max(np.abs(wanted), axis=-1, keepdims=True)
    assert np.max(np.abs(expected - wanted) / largest) < 0.02


@pytest.mark.parametrize("kind", ["operator", "written out"])
def test_scores_in_int8_are_those_of_the_exported_model(kind: str, tmp_path: Path) -> None:
    """A rule by role names no node: exporters call them what they like."""
    model, x = block(kind, "layer", tmp_path), drawn(16, LENGTH, WIDTH, seed=12)
    rule = qglow.Rule(qglow.Match(role="scores"), dtype="int8")
    profile = model.profile({"x": x})
    int8 = model.quantize(profile, Recipe(rules=(rule,)), repair=False)
    (product,) = (n for n, role in attention_region(model.graph).roles.items() if role is Role.SCORES)
    (made,) = (n for n in int8.graph.nodes if n.name == product.name)
    assert all(kind.is_quantized for kind in made.input_types()) and made.output.type.is_float
    fed = {"x": x[:1]}
    (exported,) = session(export_qdq(int8.graph)).run(["y"], fed)
    for isa in RUNNABLE:
        program = compile_graph(int8.graph, CompileOptions(isa=isa))
        np.testing.assert_allclose(program(fed)["y"], exported, rtol=1e-4, atol=1e-5, err_msg=isa)
    plain = model.quantize(profile, repair=False).compile()(fed)["y"]
    assert not np.array_equal(plain, exported)


def test_a_higher_effort_moves_no_float_node_to_integers(tmp_path: Path) -> None:
    model = block("written out", "layer", tmp_path)
    data = {"x": drawn(16, LENGTH, WIDTH, seed=12)}
    profile = model.profile(data)
    plain = model.quantize(profile, Recipe(), repair=False)
    more = model.quantize(profile, Recipe(), effort="balanced", calibration_data=data)
    before, after = ({each.name for each in made.report.float_nodes} for made in (plain, more))
    assert before <= after
