"""A model whose loop and branch data decides, from its file to artefacts and back."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import qglow
from qglow.core.errors import ProfileError
from qglow.core.types import Array
from qglow.display.terminal import to_text
from qglow.exporter.expose import expose_outputs
from qglow.recipe import Match, Rule
from qglow.recipe.schema import Recipe
from tests.runtimes import HOST_ISAS, PLAIN, machine
from tests.unit.importer.test_structured import BOOL, FLOAT, INT64, START, body
from tests.unit.importer.tiny import save, session, tiny_model
from tests.zoo import wild_path

WIDTH = 24
RNG = np.random.default_rng(6)
ROW = (FLOAT, [1, WIDTH])
WEIGHTS = {
    name: (RNG.standard_normal((WIDTH, WIDTH)) * WIDTH**-0.5).astype(np.float32) for name in ("u", "v", "w")
}
node = helper.make_node


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A product, a cell that runs as often as an input says, and a branch by the sign of its result."""
    cell = body(
        [
            node("MatMul", ["s", "v"], ["p"]),
            node("Add", ["p", "k"], ["q"]),
            node("Tanh", ["q"], ["next"]),
        ],
        {**START, "s": ROW},
        {"go": (BOOL, []), "next": ROW},
    )
    positive = body([node("MatMul", ["last", "w"], ["a"])], {}, {"a": ROW})
    negative = body([node("Neg", ["last"], ["b"])], {}, {"b": ROW})
    nodes = [
        node("MatMul", ["x", "u"], ["k"], name="first"),
        node("ReduceSum", ["rounds"], ["count"], keepdims=0),
        node("Loop", ["count", "", "k"], ["last"], name="cell", body=cell),
        node("ReduceSum", ["last"], ["sum"], keepdims=0),
        node("Greater", ["sum", "nought"], ["which"]),
        node("If", ["which"], ["y"], name="sign", then_branch=positive, else_branch=negative),
    ]
    model = tiny_model(nodes, {"x": [1, WIDTH]}, ["y"], {**WEIGHTS, "nought": np.float32(0)}, opset=16)
    model.graph.input.append(helper.make_tensor_value_info("rounds", INT64, [1, 1]))
    return save(model, tmp_path)


@pytest.fixture
def data() -> dict[str, Array]:
    return {
        "x": RNG.standard_normal((16, WIDTH)).astype(np.float32),
        "rounds": RNG.integers(0, 9, (16, 1)),
    }


def sample(data: dict[str, Array], number: int) -> dict[str, Array]:
    return {name: array[number : number + 1] for name, array in data.items()}


def test_all_runtimes_agree_and_artefacts_come_back(
    path: Path, data: dict[str, Array], tmp_path: Path
) -> None:
    model = qglow.load_model(path, native=True)
    runtime = session(path)
    compiled = {isa: model.compile(isa=isa, threads=2) for isa in (None, PLAIN, "reference")}
    for number in range(8):
        feeds = sample(data, number)
        (expected,) = runtime.run(None, feeds)
        for executable in compiled.values():
            np.testing.assert_allclose(executable(feeds)["y"], expected, rtol=1e-4, atol=1e-5)
    model.save_program(tmp_path / "float.qglow")
    again = qglow.load(tmp_path / "float.qglow")
    np.testing.assert_array_equal(again(feeds)["y"], compiled[None](feeds)["y"])
    quantized = model.quantize(model.profile(data))
    quantized.save(tmp_path / "q")
    loaded = qglow.load(tmp_path / "q" / "model.qglow")
    exported = session(tmp_path / "q" / "model.qdq.onnx")
    fast, slow = quantized.compile(), quantized.compile(isa="reference")
    for number in range(8):
        feeds = sample(data, number)
        result = fast(feeds)["y"]
        np.testing.assert_array_equal(loaded(feeds)["y"], result)
        np.testing.assert_allclose(slow(feeds)["y"], result, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(exported.run(None, feeds)[0], result, rtol=1e-3, atol=1e-3)


def test_a_long_sequence_in_a_model_of_others_is_a_loop_and_not_onnxruntime() -> None:
    path = wild_path("cw_decoder_old.onnx")
    with np.load(wild_path("cw_decoder_old.inputs.npz")) as stored:
        steps = np.concatenate([stored[f"{number}|inputs"] for number in range(4)], 1)
    x = np.tile(steps, (1, 4, 1, 1)).astype(np.float32)
    model = qglow.load_model(path, {"inputs": x.shape}, native=True)
    (expected,) = session(path).run(None, {"inputs": x})
    (found,) = model.compile()({"inputs": x}).values()
    np.testing.assert_allclose(found, expected, atol=1e-5)


def inside(names: Iterable[str], path: str) -> list[str]:
    return [name for name in names if name.startswith(path)]


def test_both_engines_see_every_round(path: Path, data: dict[str, Array]) -> None:
    model = qglow.load_model(path, native=True)
    seen = {engine: model.profile(data, engine=engine).by_name() for engine in ("compiled", "interpreter")}
    assert list(seen["compiled"]) == list(seen["interpreter"])
    rounds = int(data["rounds"].sum())
    found = inside(seen["compiled"], "cell.body/")
    assert (
        found and inside(seen["compiled"], "sign.then_body/") and inside(seen["compiled"], "sign.else_body/")
    )
    for name in found:
        for by_name in seen.values():
            assert by_name[name].total == rounds * WIDTH
    for name, statistics in seen["compiled"].items():
        other = seen["interpreter"][name]
        assert statistics.total == other.total
        np.testing.assert_allclose((statistics.low, statistics.high), (other.low, other.high), rtol=1e-4)


def test_products_inside_are_int8_with_the_same_bits_everywhere(
    path: Path, data: dict[str, Array], tmp_path: Path
) -> None:
    model = qglow.load_model(path, native=True)
    profile = model.profile(data)
    qglow.save_profile(profile, tmp_path / "profile.yaml")
    quantized = model.quantize(qglow.load_profile(tmp_path / "profile.yaml"))
    products = {node.name for node in quantized.report.quantized if node.operator == "Gemm"}
    assert inside(products, "cell.body/") and inside(products, "sign.then_body/")
    isas = [name for name in HOST_ISAS if machine(name).has_fma]
    compiled, plain = [quantized.compile(isa=isa, threads=2) for isa in isas], model.compile()
    reference = quantized.compile(isa="reference")
    signal = noise = 0.0
    for number in range(16):
        feeds = sample(data, number)
        first, *others = (executable(feeds)["y"] for executable in compiled)
        for other in (*others, reference(feeds)["y"], quantized.interpret(feeds)["y"]):
            np.testing.assert_array_equal(other, first)
        wanted = plain(feeds)["y"].astype(np.float64)
        signal, noise = signal + float((wanted**2).sum()), noise + float(((wanted - first) ** 2).sum())
    assert 10 * np.log10(signal / noise) > 25
    quantized.save(tmp_path / "q")
    exported = onnx.load(tmp_path / "q" / "model.qdq.onnx")
    (loop,) = (n for n in exported.graph.node if n.op_type == "Loop")
    (inner,) = (a.g for a in loop.attribute if a.name == "body")
    assert {"QuantizeLinear", "DequantizeLinear"} <= {n.op_type for n in inner.node}


@pytest.mark.parametrize("pattern", ["cell", "cell__MatMul", "cell.body/cell__MatMul", r"re:cell\.body/.*"])
def test_patterns_reach_what_is_inside(pattern: str, path: Path, data: dict[str, Array]) -> None:
    model = qglow.load_model(path, native=True)
    quantized = model.quantize(model.profile(data), recipe=Recipe(keep_float=(pattern,)))
    products = {node.name for node in quantized.report.quantized if node.operator == "Gemm"}
    assert not inside(products, "cell.body/") and inside(products, "sign.then_body/")


@pytest.mark.parametrize("name", ["cell", r"cell\.body/.*", "cell.body/cell__p"])
def test_rules_reach_what_is_inside(name: str, path: Path, data: dict[str, Array]) -> None:
    model = qglow.load_model(path, native=True)
    recipe = Recipe(rules=(Rule(Match(name=name), dtype="float"),), strict=True)
    quantized = model.quantize(model.profile(data), recipe=recipe)
    products = {node.name for node in quantized.report.quantized if node.operator == "Gemm"}
    assert not inside(products, "cell.body/") and inside(products, "sign.then_body/")
    wide = Recipe(rules=(Rule(Match(name="cell.body/.*"), dtype="int16"),), strict=True)
    quantized = model.quantize(model.profile(data), recipe=wide)
    kinds = {node.name: node.result for node in quantized.report.quantized}
    assert kinds["cell.body/cell__MatMul"].startswith("i16")


def test_a_state_that_rounds_add_to_stays_float(tmp_path: Path) -> None:
    """A cell with gates and a slow state, as Keras writes an LSTM: products are int8, the state is not."""
    random = np.random.default_rng(2)
    cell = body(
        [
            node("Sub", ["i", "i"], ["nothing"]),
            node("Concat", ["h", "k"], ["both"], axis=1),
            node("MatMul", ["both", "fw"], ["fp"], name="forget_product"),
            node("MatMul", ["both", "gw"], ["gp"], name="gate_product"),
            node("Add", ["fp", "three"], ["fb"]),
            node("Sigmoid", ["fb"], ["f"]),
            node("Tanh", ["gp"], ["g"]),
            node("Mul", ["f", "c"], ["kept"]),
            node("Add", ["kept", "g"], ["c2"], name="state"),
            node("Tanh", ["c2"], ["h2"]),
        ],
        {**START, "h": ROW, "c": ROW},
        {"go": (BOOL, []), "h2": ROW, "c2": ROW},
    )
    gates = {
        name: (random.standard_normal((2 * WIDTH, WIDTH)) * 0.1).astype(np.float32) for name in ("fw", "gw")
    }
    nodes = [
        node("MatMul", ["x", "u"], ["k"]),
        node("ReduceSum", ["rounds"], ["count"], keepdims=0),
        node("Loop", ["count", "", "k", "k"], ["h3", "y"], name="cell", body=cell),
    ]
    made = tiny_model(nodes, {"x": [1, WIDTH]}, ["y"], {**WEIGHTS, **gates, "three": np.float32(3)}, opset=16)
    made.graph.input.append(helper.make_tensor_value_info("rounds", INT64, [1, 1]))
    model = qglow.load_model(save(made, tmp_path), native=True)
    x = random.standard_normal((16, WIDTH)).astype(np.float32)
    rounds = np.full((16, 1), 100)
    profile = model.profile({"x": x, "rounds": rounds})
    quantized = model.quantize(profile)
    products = [node.name for node in quantized.report.quantized if node.operator == "Gemm"]
    assert len(inside(products, "cell.body/")) == 2
    assert "cell.body/cell__state" in {node.name for node in quantized.report.float_nodes}
    stated = Recipe(rules=(Rule(Match(name="cell.body/.*"), dtype="int8"),))
    feeds = [{"x": row[None], "rounds": rounds[:1]} for row in x]
    wanted, *found = (
        np.concatenate([program(each)["y"] for each in feeds]).astype(np.float64)
        for program in (made.compile() for made in (model, quantized, model.quantize(profile, stated)))
    )
    errors = [np.sum((wanted - each) ** 2) / np.sum(wanted**2) for each in found]
    assert errors[0] < 0.01 and errors[0] < 0.2 * errors[1]


def test_a_branch_that_never_ran_stays_float(path: Path, data: dict[str, Array]) -> None:
    model = qglow.load_model(path, native=True)
    last = session(expose_outputs(path.read_bytes(), ["last"]))
    chosen = [n for n in range(16) if last.run(["last"], sample(data, n))[0].sum() <= 0]
    part = {name: array[chosen] for name, array in data.items()}
    quantized = model.quantize(model.profile(part))
    names = [node.name for node in quantized.report.quantized]
    assert inside(names, "cell.body/") and not inside(names, "sign.then_body/")


def test_a_profile_of_other_weights_inside_is_stale(
    path: Path, data: dict[str, Array], tmp_path: Path
) -> None:
    profile = qglow.load_model(path, native=True).profile(data)
    changed = onnx.load(path)
    (weights,) = (t for t in changed.graph.initializer if t.name == "v")
    weights.CopyFrom(onnx.numpy_helper.from_array(WEIGHTS["v"] * 2, "v"))
    other = qglow.load_model(save(changed, tmp_path, "other.onnx"), native=True)
    with pytest.raises(ProfileError, match="stale"):
        other.quantize(profile)


def test_nodes_inside_are_explained_by_their_paths(path: Path, data: dict[str, Array]) -> None:
    model = qglow.load_model(path, native=True)
    quantized = model.quantize(model.profile(data))
    text = to_text(quantized.explain("cell.body/cell__MatMul"), 200)
    assert "Node cell.body/cell__MatMul" in text and "Gemm" in text
    assert "int8 region" in text and "fits" in text and "No instruction is left" not in text
    text = to_text(model.explain("sign.then_body/sign__MatMul"), 200)
    assert "float32: the model is not quantized" in text and "input of sign.then_body" in text
    with pytest.raises(qglow.UsageError, match="did you mean 'cell.body/"):
        quantized.explain("cell.body/cell__MatMu")


def test_layers_inside_are_compared_by_their_paths(path: Path, data: dict[str, Array]) -> None:
    model = qglow.load_model(path, native=True)
    inside = Rule(Match(name="cell.body/.*"), dtype="int8")  # what rounds carry too
    quantized = model.quantize(model.profile(data), recipe=Recipe(rules=(inside,)))
    layers = {layer.node: layer for layer in qglow.compare_layers(quantized, data).layers}
    quantized_inside = {n.name for n in quantized.report.quantized if "body/" in n.name}
    assert quantized_inside <= layers.keys()
    product = layers["cell.body/cell__MatMul"]
    assert product.isolated is not None and 25 < product.isolated.sqnr_db < 60
    assert product.isolated.elements == int(data["rounds"].sum()) * WIDTH
    assert product.match is not None and product.match.elements > 0 and product.match.max_step <= 1
    # Errors of a state add up from round to round.
    assert product.accumulated is not None
    assert product.accumulated.sqnr_db < product.isolated.sqnr_db
