"""Weights that are quantized alone, in blocks: formats, codes, what is refused and reported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from onnx import helper

import qglow
from qglow.core.errors import UsageError
from qglow.core.types import Array, ElementType, float_type
from qglow.exporter import export_qdq
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.interpreter import interpret
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.linear import Gemm
from qglow.numerics import block_rounding
from qglow.numerics.block_rounding import quantize_blocks
from qglow.numerics.blocks import dequantized, gemm_blocks, pack
from qglow.quantization.blocks import unfit_for_blocks
from qglow.quantization.pipeline import quantize_with
from qglow.quantization.reconstruction.blocks import feedback_in_blocks
from qglow.recipe.choices import BlockFormat
from qglow.recipe.loading import parse_recipe
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe
from tests.unit.importer.tiny import save, session, tiny_model

RANDOM = np.random.default_rng(3)
W1 = RANDOM.normal(size=(40, 16)).astype(np.float32)
W2 = RANDOM.normal(size=(16, 8)).astype(np.float32)
BIAS = RANDOM.normal(size=16).astype(np.float32)
X = RANDOM.normal(size=(5, 40)).astype(np.float32)
FORMATS = [
    BlockFormat(bits, 16, symmetric, float16)
    for bits in (8, 4, 2)
    for symmetric in (False, True)
    for float16 in (False, True)
]


STATE = RANDOM.bit_generator.state


@pytest.fixture(autouse=True)
def same_draws() -> None:
    """Give every test the same draws, whichever tests its process runs before it."""
    RANDOM.bit_generator.state = STATE


def two_layers() -> Graph:
    b = GraphBuilder("g")
    x = b.input("x", float_type(5, 40))
    hidden = b.node(Gemm(lo=0.0), x, b.constant("w1", W1), b.constant("b1", BIAS), name="hidden")
    return b.finish(b.node(Gemm(), hidden, b.constant("w2", W2), name="y"))


def restored(w: Array, chosen: BlockFormat) -> Array:
    codes, scales, zeros = quantize_blocks(w, chosen.bits, chosen.block, chosen.symmetric, chosen.float16)
    packed = pack(codes, chosen.bits)
    return dequantized(packed, scales, zeros, len(w), chosen.bits, chosen.block)


@pytest.mark.parametrize("chosen", FORMATS, ids=str)
def test_weights_of_few_bits_have_scales_of_least_error(chosen: BlockFormat) -> None:
    def error(fractions: Sequence[float]) -> Array:
        with mock.patch.object(block_rounding, "FRACTIONS", fractions):
            return np.add.reduceat(np.square(restored(W1, chosen) - W1), [0, 16, 32], axis=0)

    tried = block_rounding.FRACTIONS
    best, others = error(tried), [error([fraction]) for fraction in tried]
    assert np.allclose(best, np.min(others, axis=0), rtol=1e-4)
    assert chosen.bits == 8 or best.sum() < 0.95 * others[0].sum()


@pytest.mark.parametrize("chosen", [format_ for format_ in FORMATS if format_.bits == 8], ids=str)
def test_every_weight_is_within_half_a_step(chosen: BlockFormat) -> None:
    _, scales, zeros = quantize_blocks(W1, chosen.bits, chosen.block, chosen.symmetric, chosen.float16)
    assert (zeros is None) == chosen.symmetric and scales.shape == (3, 16)
    # A zero point that is rounded moves the ends of the range by up to half a step.
    room = 0.5 if chosen.symmetric else 1.0
    steps = np.abs(restored(W1, chosen) - W1) / np.repeat(scales.astype(np.float32), 16, axis=0)[:40]
    # A scale that is rounded down leaves the largest weight up to 127 * 2^-11 steps beyond its code.
    assert float(steps.max()) <= (room + 255 * 2.0**-11 * chosen.float16) * (1 + 1e-5)


@pytest.mark.parametrize("symmetric", [False, True])
def test_blocks_of_zeros_and_of_one_sign_are_restored(symmetric: bool) -> None:
    w = np.zeros((40, 2), np.float32)
    w[:16, 1], w[20, 1] = 3.0, -5.0
    found = restored(w, BlockFormat(4, 16, symmetric))
    assert np.allclose(found, w, rtol=1e-6) and np.array_equal(found == 0, w == 0)


@pytest.mark.parametrize("chosen", FORMATS, ids=str)
def test_the_result_is_that_of_the_numeric_contract(chosen: BlockFormat) -> None:
    result = quantize_with(two_layers(), {}, 0, Recipe(weights=chosen))

    def product(x: Array, w: Array, bias: Array | None, lo: float) -> Array:
        form = (chosen.bits, chosen.block, chosen.symmetric, chosen.float16)
        codes, *parameters = quantize_blocks(w, *form)
        packed = pack(codes, chosen.bits)
        return gemm_blocks(x, packed, *parameters, bias, chosen.bits, chosen.block, lo)

    expected = product(product(X, W1, BIAS, 0.0), W2, None, -np.inf)
    assert np.array_equal(interpret(result.graph, {"x": X})["y"], expected)
    assert [(node.name, node.dtype) for node in result.report.float_nodes] == [
        ("Gemm_0", str(chosen)),
        ("Gemm_1", str(chosen)),
    ]
    assert f"2 in float (2 {chosen})" in result.report.summary()
    assert result.report.weight_bytes_after < result.report.weight_bytes_before / 2


def test_rules_choose_formats_for_parts() -> None:
    recipe = parse_recipe(
        "weights: int4\nrules:\n- match: {name: hidden}\n  weights: int8:64:symmetric\n"
        "- match: {name: y}\n  dtype: float\n"
    )
    assert parse_recipe("weights: int4:16").weights == BlockFormat(4, 16)
    report = quantize_with(two_layers(), {}, 0, recipe).report
    assert [(node.dtype, node.reason) for node in report.float_nodes] == [
        ("int8:64:symmetric", "float by rule 1 (name hidden): its weights are int8:64:symmetric"),
        ("float32", "kept by rule 2 (name y)"),
    ]
    kept = quantize_with(two_layers(), {}, 0, Recipe(weights=BlockFormat(), keep_float=("y",)))
    assert [node.dtype for node in kept.report.float_nodes] == ["int4:32", "float32"]


def test_recipes_keep_their_formats() -> None:
    chosen = BlockFormat(2, 64, True)
    assert Rule(Match(name="y"), weights=chosen).to_document()["weights"] == "int2:64:symmetric"
    assert Recipe().with_overrides(weights="int4").weights == BlockFormat()
    halves = Recipe(weights=BlockFormat(4, 32, True, float16=True))
    assert "weights: int4:32:symmetric:float16\n" in halves.to_yaml()
    assert parse_recipe(halves.to_yaml()).weights == halves.weights
    assert BlockFormat.parse("int8:float16") == BlockFormat(8, 32, False, True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("int3", "did you mean|not one of int8, int4, int2"),
        ("int4:8", "blocks of 16, 32, 64, 128, 256 are supported"),
        ("int4:32:even", "write int4, int4:BLOCK or int4:BLOCK:symmetric"),
        ("int4:float16:symmetric", "and :float16 behind it for scales of 16 bits"),
    ],
)
def test_other_formats_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BlockFormat.parse(text)


def test_choices_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="leave dtype int16 out"):
        Rule(Match(name="y"), dtype="int16", weights=BlockFormat())


def test_others_than_products_with_constant_weights_are_not_rewritten() -> None:
    b = GraphBuilder("g")
    image = b.input("x", float_type(1, 2, 4, 4))
    conv = b.node(Conv(), image, b.constant("w", np.ones((2, 2, 1, 1), np.float32)), name="conv")
    result = quantize_with(b.finish(conv), {}, 0, Recipe(weights=BlockFormat()))
    assert "products of rows" in result.report.float_nodes[0].reason
    b = GraphBuilder("g")
    broken = np.full((24, 2), np.inf, np.float32)
    nodes = b.finish(b.node(Gemm(), b.input("x", float_type(1, 24)), b.constant("w", broken))).nodes
    assert "NaN or infinities" in str(unfit_for_blocks(next(iter(nodes))))


def model_file(folder: Path) -> Path:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "b"], ["y"])]
    return save(tiny_model(nodes, {"x": [2, 3, 40]}, ["y"], {"w": W1, "b": BIAS}), folder)


def test_python_and_a_directory_have_it(tmp_path: Path) -> None:
    model = qglow.load_model(model_file(tmp_path))
    quantized = model.quantize(weights="int4:16")
    x = RANDOM.normal(size=(2, 3, 40)).astype(np.float32)
    expected = quantized.interpret({"x": x})["y"]
    assert np.array_equal(quantized.compile()({"x": x})["y"], expected)
    error = expected - model.interpret({"x": x})["y"]
    assert float(np.square(error).mean()) < 0.02 * float(np.square(expected).mean())
    quantized.save(tmp_path / "out")
    assert "of weights alone, in blocks" in (tmp_path / "out" / "report.md").read_text()
    loaded = qglow.load_quantized(tmp_path / "out")
    assert np.array_equal(loaded.compile()({"x": x})["y"], expected)
    found = session(tmp_path / "out" / "model.qdq.onnx").run(None, {"x": x})[0]
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("chosen", FORMATS, ids=str)
def test_the_exported_model_comes_back_with_the_same_bits(chosen: BlockFormat, tmp_path: Path) -> None:
    graph = quantize_with(two_layers(), {}, 0, Recipe(weights=chosen)).graph
    exported = export_qdq(graph)
    again = qglow.load_model(save(exported, tmp_path), native=True)
    expected = interpret(graph, {"x": X})["y"]
    assert np.array_equal(again.interpret({"x": X})["y"], expected)
    found = session(exported).run(None, {"x": X})[0]
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-4)
    stored = [node.operand("scales").type.element for node in (graph.nodes[0], again.graph.nodes[0])]  # type: ignore[union-attr]
    assert stored == [ElementType.FLOAT16 if chosen.float16 else ElementType.FLOAT] * 2


@pytest.mark.parametrize("chosen", FORMATS, ids=str)
def test_blocks_are_the_same_in_parts_and_at_once(chosen: BlockFormat) -> None:
    w = RANDOM.normal(size=(150, 70)).astype(np.float32)
    form = (chosen.bits, chosen.block, chosen.symmetric, chosen.float16)
    whole = quantize_blocks(w, *form)
    for few in (1, 40 * chosen.block, 100 * chosen.block):
        with mock.patch.object(block_rounding, "AT_ONCE", few):
            parts = quantize_blocks(w, *form)
        for one, other in zip(parts, whole, strict=True):
            assert one is other is None or one.tobytes() == other.tobytes()  # type: ignore[union-attr]


def test_scales_of_16_bits_are_rounded_before_the_weights_are() -> None:
    w = np.full((16, 1), 7 * 1.0004, np.float32)
    codes, scales, _ = quantize_blocks(w, 8, 16, True, float16=True)
    assert scales.dtype == np.float16 and np.float32(scales[0, 0]) != w[0, 0] / 127
    assert np.all(codes == 128 + np.rint(w / scales.astype(np.float32)))
    tiny, *_ = quantize_blocks(np.full((16, 1), 1e-9, np.float32), 4, 16, True, float16=True)
    assert np.all(tiny == 8)  # half of the least scale is 3e-8


def test_weights_beyond_the_scales_of_16_bits_stay_float() -> None:
    b = GraphBuilder("g")
    large = b.constant("w", np.full((40, 2), 7e4, np.float32))
    graph = b.finish(b.node(Gemm(), b.input("x", float_type(1, 40)), large, name="large"))
    for dynamic in (False, True):
        recipe = Recipe(weights=BlockFormat(float16=True), dynamic=dynamic)
        (node,) = quantize_with(graph.copy(), {}, 0, recipe).report.float_nodes
        assert "its weights reach 70000, and scales of float16 65504" in node.reason
    assert quantize_with(graph, {}, 0, Recipe(weights=BlockFormat())).report.float_nodes[0].dtype == "int4:32"


def test_the_artefact_holds_packed_weights(tmp_path: Path) -> None:
    w = RANDOM.normal(size=(512, 512)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = qglow.load_model(save(tiny_model(nodes, {"x": [1, 512]}, ["y"], {"w": w}), tmp_path))
    blocks_of_weights = w.size // 128
    for form, each in {"int4:128:symmetric": 4.0, "int4:128": 4.5, "int4:128:float16": 2.5}.items():
        quantized = model.quantize(weights=form)
        assert quantized.report is not None
        assert quantized.report.weight_bytes_after == w.size // 2 + each * blocks_of_weights


def test_what_needs_a_profile_says_so(tmp_path: Path) -> None:
    model = qglow.load_model(model_file(tmp_path))
    with pytest.raises(UsageError, match="or choose `dynamic` or `weights`"):
        model.quantize()


def float_model(tmp_path: Path, *, batch: int | str = 1) -> tuple[qglow.Model, Array]:
    """A chain of two products, and inputs of which some are much larger than others."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "w2"], ["y"], name="second"),
    ]
    path = save(tiny_model(nodes, {"x": [batch, 40]}, ["y"], {"w1": W1, "w2": W2}), tmp_path)
    mixed = RANDOM.normal(size=(40, 40)) * np.geomspace(0.1, 10, 40)
    return qglow.load_model(path), (RANDOM.normal(size=(300, 40)) @ mixed).astype(np.float32)


@pytest.mark.parametrize("chosen", ["int4:16", "int4:32:symmetric", "int2:16"])
@pytest.mark.parametrize("rounding", ["gptq", "adaround"])
def test_feedback_of_errors_lowers_the_error_of_results(chosen: str, rounding: str, tmp_path: Path) -> None:
    model, samples = float_model(tmp_path, batch="N")
    expected = np.concatenate([model.interpret({"x": x[None]})["y"] for x in samples[:50]])
    errors = []
    for options in ({}, {"rounding": rounding, "calibration_data": {"x": samples[50:]}}):
        quantized = model.quantize(weights=chosen, **options)  # type: ignore[arg-type]
        found = np.concatenate([quantized.interpret({"x": x[None]})["y"] for x in samples[:50]])
        errors.append(float(np.square(found - expected).sum()))
        compiled = quantized.compile(threads=1)({"x": samples[:1]})["y"]
        assert np.array_equal(compiled, quantized.interpret({"x": samples[:1]})["y"])
    assert errors[1] < 0.7 * errors[0]
    assert quantized.report is not None
    told = [entry for entry in quantized.report.log if entry.pass_name == "round-weights"]
    assert [entry.where for entry in told] == ["first", "second"]
    assert all("squared error that rounding adds falls" in entry.what for entry in told)


def test_uncorrelated_inputs_round_to_the_nearest() -> None:
    scales = np.repeat(RANDOM.uniform(0.1, 0.3, size=(3, 16)), 16, axis=0)[:40]
    zeros = np.full((40, 16), 8)
    codes = feedback_in_blocks(W1, scales, zeros, 4, np.diag(RANDOM.uniform(1, 9, 40)))
    assert np.array_equal(codes, np.clip(np.rint(W1 / scales) + 8, 0, 15))


def test_rounding_of_blocks_wants_samples(tmp_path: Path) -> None:
    model, samples = float_model(tmp_path)
    with pytest.raises(UsageError, match="give them with `calibration_data`"):
        model.quantize(weights="int4", rounding="gptq")
    with pytest.raises(UsageError, match="rounding looks at samples: profile the model"):
        model.quantize(dynamic=True, rounding="gptq", calibration_data={"x": samples})
    with pytest.raises(UsageError, match="effort looks at samples"):
        model.quantize(weights="int4", effort="balanced", calibration_data={"x": samples})


def test_an_interruption_keeps_the_layers_that_are_done(tmp_path: Path) -> None:
    model, samples = float_model(tmp_path)
    told: list[str] = []

    def advance(done: int) -> None:
        if done:
            raise KeyboardInterrupt

    options = {
        "rounding": "gptq",
        "calibration_data": {"x": samples},
        "progress": lambda total: advance,
    }
    quantized = model.quantize(weights="int4:16", interrupted=told.append, **options)  # type: ignore[arg-type]
    assert told == ["rounding weights"] and quantized.report is not None
    changed = [entry.where for entry in quantized.report.log if entry.pass_name == "round-weights"]
    assert changed == ["first"]


@pytest.mark.parametrize("chosen", [form for form in FORMATS if form.bits < 8], ids=str)
def test_half_quadratic_splitting_lowers_the_error_of_weights_alone(chosen: BlockFormat) -> None:
    w = RANDOM.laplace(size=(256, 40)).astype(np.float32)
    b = GraphBuilder("g")
    x = b.input("x", float_type(1, 256))
    graph, errors = b.finish(b.node(Gemm(), x, b.constant("w", w), name="y")), {}
    for rounding in ("nearest", "hqq"):
        made = quantize_with(graph.copy(), {}, 0, Recipe(weights=chosen, rounding=rounding)).graph
        packed, scales, zeros = (None if value is None else value.data for value in made.nodes[0].inputs[1:4])
        assert packed is not None and scales is not None
        found = dequantized(packed, scales, zeros, len(w), chosen.bits, chosen.block)
        errors[rounding] = np.add.reduceat(np.square(found - w), range(0, 256, chosen.block), axis=0)
    assert np.all(errors["hqq"] <= errors["nearest"] * (1 + 1e-6))
    assert errors["hqq"].sum() < 0.999 * errors["nearest"].sum()


def test_half_quadratic_splitting_of_weights_of_any_size() -> None:
    """Blocks of zeros, of one weight, and of weights at the ends of float32 keep finite scales."""
    w = np.zeros((20, 4), np.float32)
    w[3, 1], w[:, 2], w[:, 3] = 1.0, RANDOM.normal(size=20) * 1e-38, RANDOM.normal(size=20) * 1e37
    for symmetric in (False, True):
        codes, scales, zeros = quantize_blocks(w, 4, 16, symmetric, refined=True)
        assert np.all(np.isfinite(scales)) and np.all(scales > 0)
        found = dequantized(pack(codes, 4), scales, zeros, len(w), 4, 16)
        assert np.all(np.abs(found - w).max(axis=0) <= 0.3 * np.abs(w).max(axis=0) + 2.0**-97)


def test_half_quadratic_splitting_wants_weights_in_blocks(tmp_path: Path) -> None:
    model = qglow.load_model(model_file(tmp_path))
    with pytest.raises(UsageError, match="rounding hqq is for weights in blocks, and there are none"):
        model.quantize(model.profile({"x": np.ones((4, 3, 40), np.float32)}), rounding="hqq")
    with pytest.raises(UsageError, match="not with `rounding=hqq`"):
        model.quantize(weights="int4", rounding="hqq", rounding_budget="10s")
