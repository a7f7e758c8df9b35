"""From a float graph and a profile to an int8 graph, whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qglow.core.errors import ProfileError, UnsupportedError, UsageError
from qglow.core.types import ElementType, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.fingerprint import fingerprint
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.shape import Concat
from qglow.graph.ops.softmax import Softmax
from qglow.graph.text import constant_data, parse_graph, print_graph
from qglow.graph.verifier import verify_graph
from qglow.importer.model import import_model
from qglow.numerics.schema import Schema
from qglow.passes.pipeline import canonicalize
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.pipeline import FOLDING, quantize, quantize_with
from qglow.quantization.preparations import Preparations
from qglow.recipe.choices import Calibration
from qglow.recipe.schema import Recipe
from tests.unit.profiling.networks import profile_of, residual_network, samples

MINMAX = Recipe(calibration=Calibration("minmax"))
DIGITS = Path(__file__).parents[3] / "calib_data"


def sqnr(float_graph: Graph, int8_graph: Graph, count: int = 20) -> float:
    """dB of the first output over random inputs."""
    signal = noise = 0.0
    runs = Interpreter(float_graph), Interpreter(int8_graph)
    for sample in samples(count, seed=5):
        inputs = {"x": sample.inputs["x"][None]}
        wanted, found = (next(iter(run.run(inputs).values())).astype(np.float64) for run in runs)
        signal, noise = signal + float((wanted**2).sum()), noise + float(((wanted - found) ** 2).sum())
    return 10 * float(np.log10(signal / noise))


@pytest.mark.parametrize("schema", list(Schema))
@pytest.mark.parametrize("calibration", ["minmax", "kl", "mse", "percentile:99.99"])
def test_every_schema_and_calibration_gives_a_close_program(schema: Schema, calibration: str) -> None:
    graph = residual_network()
    options = Recipe(schema=schema.value, calibration=Calibration.parse(calibration))
    found = quantize(graph, profile_of(30), options)
    assert sqnr(graph, found.graph) > (18 if schema is Schema.symmetric_with_power2_scale else 22)


def test_the_graph_that_is_given_stays() -> None:
    graph = residual_network()
    text = print_graph(graph)
    quantize(graph, profile_of(), MINMAX)
    assert print_graph(graph) == text


def test_one_region_with_a_float_result_straight_from_the_sums() -> None:
    found = quantize(residual_network(), profile_of(), MINMAX)
    assert [n.operator.name for n in found.graph.nodes] == [
        "Quantize", "Conv", "Conv", "Conv", "Add", "GlobalAveragePool", "Reshape", "Gemm",
    ]  # fmt: skip
    assert found.graph.outputs[0].name == "y" and found.graph.outputs[0].type.is_float
    report = found.report
    assert [n.name for n in report.quantized][0] == "Conv_0" and report.float_nodes == ()
    assert [(b.value, b.direction, b.reason) for b in report.islands[0].borders] == [
        ("x_int8", "in", "input of the model"),
        ("y", "out", "output of the model"),
    ]
    into, out = report.islands[0].borders
    assert into.cost == 4 * into.elements and out.cost == 0
    assert report.islands[0].gain > report.islands[0].cost == into.cost
    assert report.rescales_left == 0 and report.rescales_folded["cancel-conversions"] == 6
    assert report.weight_bytes_after < report.weight_bytes_before / 2
    assert "8 in float" not in report.summary() and "fits" in report.summary()


def test_int8_values_keep_their_names_and_the_text_restores_the_graph() -> None:
    found = quantize(residual_network(), profile_of(), MINMAX).graph
    verify_graph(found, "test")
    assert found.value("total").type.element is ElementType.INT8
    assert print_graph(parse_graph(print_graph(found), constant_data(found))) == print_graph(found)


def test_quantizing_again_gives_the_same_graph() -> None:
    first, second = (quantize(residual_network(), profile_of(), MINMAX).graph for _ in range(2))
    assert print_graph(first) == print_graph(second)
    for a, b in zip(first.constants(), second.constants(), strict=True):
        np.testing.assert_array_equal(a.data, b.data)


@pytest.mark.parametrize("second", [{"calibration": Calibration("minmax")}, {"equalize": False}])
def test_what_recipes_share_does_not_change_a_graph(second: dict[str, Any]) -> None:
    graph = residual_network()
    profile = profile_of(graph=graph)
    shared: Preparations = {}
    for recipe in (Recipe(), Recipe(**second), Recipe()):
        given = graph, profile.check_matches(graph), profile.samples, recipe
        alone, together = quantize_with(*given), quantize_with(*given, preparations=shared)
        assert fingerprint(together.graph) == fingerprint(alone.graph)
        assert (together.report, together.rescaled) == (alone.report, alone.rescaled)
    assert len(shared) == (1 if "calibration" in second else 2)


def test_batches_have_the_parameters_of_batch_1() -> None:
    profile = profile_of()
    one = quantize(residual_network(), profile, MINMAX).graph
    statistics = profile.check_matches(residual_network())
    four = quantize_with(residual_network(4), statistics, profile.samples, MINMAX).graph
    assert [v.type.quantization for v in one.values()] == [v.type.quantization for v in four.values()]


def test_corrections_help_where_channels_differ_in_size() -> None:
    graph = residual_network()
    factors = np.geomspace(1, 1000, 8).astype(np.float32)
    for name, shrink in (("w0", True), ("b0", True), ("w1", False)):
        value = graph.value(name)
        assert value.data is not None
        spread = factors.reshape(-1, *(1,) * (value.data.ndim - 1))
        value.data = value.data / spread if shrink else value.data * spread
    profile = profile_of(30, graph=graph)
    plain = Recipe(calibration=Calibration("minmax"), equalize=False, correct_bias=False)
    helped, alone = (quantize(graph, profile, options).graph for options in (MINMAX, plain))
    assert sqnr(graph, helped) > sqnr(graph, alone) + 6


def test_a_node_kept_float_gets_conversions_with_its_reason() -> None:
    options = Recipe(keep_float=("pointwise",))
    found = quantize(residual_network(), profile_of(), options)
    assert [(n.name, n.reason) for n in found.report.float_nodes] == [
        ("Conv_2", "kept by keep_float pointwise")
    ]
    reasons = {border.reason for island in found.report.islands for border in island.borders}
    assert "Conv 'Conv_2' stays float: kept by keep_float pointwise" in reasons
    assert sqnr(residual_network(), found.graph) > 20


def test_a_pattern_that_fits_nothing_is_an_error() -> None:
    with pytest.raises(UsageError, match="^keep_float pointwize.*; did you mean 'pointwise'[?]$"):
        quantize(residual_network(), profile_of(), Recipe(keep_float=("pointwize",)))
    with pytest.raises(UsageError, match="^keep_float op:LSTM.*others, has Add, .*Conv, .*Gemm"):
        quantize(residual_network(), profile_of(), Recipe(keep_float=("op:LSTM",)))


def test_everything_quantized_can_be_demanded() -> None:
    options = Recipe(assert_all_quantized=True)
    quantize(residual_network(), profile_of(), options)
    kept = Recipe(keep_float=("op:Gemm", "stem"), assert_all_quantized=True)
    with pytest.raises(
        UnsupportedError, match=r"2 nodes stay float.*\n  Conv 'Conv_0': kept.*\n  Gemm 'Gemm_0'"
    ):
        quantize(residual_network(), profile_of(), kept)


def test_a_stale_profile_is_refused() -> None:
    with pytest.raises(ProfileError, match="stale"):
        quantize(residual_network(seed=4), profile_of(), MINMAX)


def test_a_softmax_at_the_end_is_fed_in_float() -> None:
    b = GraphBuilder("g")
    x = b.input("x", float_type(1, 3, 6, 6))
    w = b.constant("w", np.random.default_rng(0).normal(size=(4, 3, 1, 1)).astype(np.float32))
    graph = b.finish(b.node(Softmax(axis=1), b.node(Conv(), x, w, name="c"), name="y"))
    found = quantize(graph, profile_of(20, graph=graph), MINMAX)
    assert [n.operator.name for n in found.graph.nodes] == ["Quantize", "Conv", "Softmax"]
    assert found.report.float_nodes[0].operator == "Softmax"


def test_operands_of_a_concat_are_produced_in_its_parameters() -> None:
    random = np.random.default_rng(0)
    b = GraphBuilder("g")
    x = b.input("x", float_type(1, 3, 6, 6))
    small = b.constant("small", (random.normal(size=(4, 3, 1, 1)) * 0.1).astype(np.float32))
    large = b.constant("large", random.normal(size=(4, 3, 1, 1)).astype(np.float32))
    both = b.node(
        Concat(1), b.node(Conv(), x, small, name="s"), b.node(Conv(), x, large, name="l"), name="both"
    )
    last = b.constant("last", random.normal(size=(2, 8, 6, 6)).astype(np.float32))
    graph = b.finish(b.node(Conv(), both, last, name="y"))
    found = quantize(graph, profile_of(20, graph=graph), MINMAX)
    assert found.report.rescales_left == 0
    assert found.report.rescales_folded["fold-rescale-up"] == 1
    assert any("'s' would lose" in entry.what for entry in found.report.log)
    assert sqnr(graph, found.graph) > 25


def test_the_choices_of_a_recipe_are_those_of_the_graph() -> None:
    recipe = Recipe(
        schema="symmetric",
        calibration=Calibration("mse"),
        per_tensor=True,
        keep_float=("op:Add",),
        equalize=False,
        correct_bias=False,
        io="int8",
    )
    found = quantize(residual_network(), profile_of(), recipe)
    assert found.recipe == recipe
    assert {node.operator for node in found.report.float_nodes} == {"Add"}
    interface = [v.type.quantization for v in (*found.graph.inputs, *found.graph.outputs)]
    assert all(kind is not None and kind.zero_point == 0 for kind in interface)
    weights = [v.type.quantization for v in found.graph.constants() if v.type.is_quantized]
    assert weights and all(kind is not None and kind.axis is None for kind in weights)
    assert {entry.pass_name for entry in found.report.log}.isdisjoint({"equalize-channels"})


def test_the_report_names_the_passes() -> None:
    report = quantize(residual_network(), profile_of(), MINMAX).report
    assert report.pipeline == str(FOLDING)
    assert report.pipeline.startswith("cancel-conversions,merge-rescales,fold-rescale-up")


def test_digits_keep_their_accuracy() -> None:
    graph = canonicalize(import_model(DIGITS / "digits.onnx", {"input": (100, 1, 8, 8)}).graph)
    with np.load(DIGITS / "calib.npz") as data:
        calibration = data["input"][:100].astype(np.float32)
    with np.load(DIGITS / "test.npz") as data:
        images, labels = data["input"][:100].astype(np.float32), data["label"][:100]
    statistics: dict[str, ValueProfile] = {}

    def tap(value: object, array: np.ndarray) -> None:
        if array.dtype == np.float32:
            found = statistics.setdefault(value.name, ValueProfile.of_shape(array.shape))  # type: ignore[attr-defined]
            found.observe(array)

    Interpreter(graph).run({"input": calibration}, tap)  # type: ignore[arg-type]
    int8 = quantize_with(graph, statistics, 100)
    wanted = next(iter(Interpreter(graph).run({"input": images}).values()))
    found = next(iter(Interpreter(int8.graph).run({"input": images}).values()))
    assert (found.argmax(1) == wanted.argmax(1)).mean() >= 0.99
    assert (found.argmax(1) == labels).mean() >= 0.97
    assert 10 * np.log10((wanted**2).sum() / ((wanted - found) ** 2).sum()) > 25
