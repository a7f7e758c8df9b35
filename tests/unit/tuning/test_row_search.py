"""Linear layers beyond attention measure their rows where that is better."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qglow.core.types import float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Value
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add, Mul
from qglow.graph.ops.functions import Sigmoid, Tanh
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.movement import Slice
from qglow.graph.ops.pool import GlobalAveragePool
from qglow.graph.ops.shape import Reshape
from qglow.graph.rewriting import operand
from qglow.profiling.samples import Sample
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe
from qglow.tuning.quantizer import Quantizer
from qglow.tuning.repair import AMPLE_DB, ROWS_DB, repaired
from qglow.tuning.row_search import FEW_SAMPLES, NO_RANGE_DB, with_rows
from qglow.tuning.stage import Stage
from qglow.tuning.without_range import without_range
from tests.unit.quantization.attention_networks import bert
from tests.unit.quantization.test_single_steps import GRU
from tests.unit.tuning.repair_networks import level, made
from tests.unit.tuning.test_without_range import DECIDED, texts

WIDTH = 32
HALF = WIDTH // 2
TOKENS = 8
QUIET = 0.01
ONE = "one product measures its rows while the model runs"
ALL = "3 products measure their rows while the model runs"


def layer(b: GraphBuilder, x: Value, name: str, seed: int, lo: float = -np.inf, quiet: float = 1.0) -> Value:
    """A linear layer whose second half makes up for inputs that are so quiet."""
    w = np.random.default_rng(seed).normal(size=(x.type.shape[1], WIDTH)) / np.sqrt(WIDTH)
    if quiet != 1.0:
        w[HALF:, HALF:] /= quiet
        w[HALF:, :HALF] = w[:HALF, HALF:] = 0.0
    none = b.constant(f"{name}.b", np.zeros(WIDTH, np.float32))
    return b.node(Gemm(lo=lo), x, b.constant(f"{name}.w", w.astype(np.float32)), none, name=name)


def perceptron(quiet: float = QUIET) -> Graph:
    """Layers whose results are alike for loud and for quiet samples."""
    b = GraphBuilder("perceptron")
    h = layer(b, b.input("x", float_type(1, WIDTH)), "first", 1, lo=0.0, quiet=quiet)
    return b.finish(layer(b, layer(b, h, "second", 2, lo=0.0), "y", 3))


def sounds(count: int, seed: int, quiet: float = QUIET) -> list[Sample]:
    """Samples with a loud first half, or with a second half that is so quiet."""
    drawn = np.random.default_rng(seed).normal(size=(count, WIDTH)).astype(np.float32)
    drawn[::2, HALF:] = 0.0
    drawn[1::2, :HALF] = 0.0
    drawn[1::2] *= quiet
    return [Sample(f"sound {i}", {"x": each}) for i, each in enumerate(drawn)]


def measured(quantizer: Quantizer, recipe: Recipe) -> set[str]:
    """The values whose rows are measured."""
    report = quantizer(recipe).report
    names = {node.name for node in report.quantized if node.dynamic}
    return {operand(node).name for node in quantizer.graph.nodes if node.name in names}


def of_many(graph: Graph, kept: list[Sample]) -> Quantizer:
    """What makes int8 graphs by ranges that hold, as those of so many samples."""
    return replace(made(graph, kept), samples=FEW_SAMPLES)


def test_layers_of_loud_and_quiet_samples_measure_their_rows() -> None:
    kept, fresh = sounds(16, 5), sounds(40, 77)
    quantizer = of_many(perceptron(), kept)
    found = repaired(Recipe(), quantizer, kept)
    assert ONE in [repair.what for repair in found.repairs]
    assert measured(quantizer, found.recipe) == {"x"}
    assert level(quantizer, found.recipe, fresh) > level(quantizer, Recipe(), fresh) + 10.0


def test_a_model_that_is_good_gets_better_by_rows_too() -> None:
    quiet = 0.2
    kept, fresh = sounds(16, 5, quiet), sounds(40, 77, quiet)
    quantizer = made(perceptron(quiet), kept)
    assert AMPLE_DB < Stage.first(Recipe(), quantizer, kept).sqnr_db < ROWS_DB
    found = repaired(Recipe(), quantizer, kept)
    assert measured(quantizer, found.recipe)
    assert level(quantizer, found.recipe, fresh) > level(quantizer, Recipe(), fresh) + 1.0


def test_the_gain_is_that_of_the_programs() -> None:
    kept = sounds(16, 5)
    quantizer = of_many(perceptron(), kept)
    (repair,) = [each for each in repaired(Recipe(), quantizer, kept).repairs if each.what == ONE]
    plain = Stage.first(Recipe(), quantizer, kept)
    result = with_rows(plain, Recipe(), quantizer, lambda recipe: Stage(recipe, quantizer, plain.runs))
    assert result is not None
    after, alone = result
    assert alone.before_db == plain.measured.level and alone.after_db == after.measured.level
    assert repair.after_db == pytest.approx(alone.after_db, abs=1.0)


def test_rows_that_win_nothing_are_not_measured() -> None:
    b = GraphBuilder("even")
    graph = b.finish(layer(b, layer(b, b.input("x", float_type(1, WIDTH)), "first", 1, lo=0.0), "y", 3))
    kept = sounds(16, 5, quiet=1.0)
    quantizer = of_many(graph, kept)
    stage = Stage.first(Recipe(), quantizer, kept)
    assert with_rows(stage, Recipe(), quantizer, lambda recipe: Stage(recipe, quantizer, stage.runs)) is None


def test_ranges_of_few_samples_are_left_for_rows() -> None:
    """Samples of unlike loudness: the loudest of a few is well below that of the next ones."""

    def drawn(count: int, seed: int) -> list[Sample]:
        random = np.random.default_rng(seed)
        loud = np.exp(0.8 * random.normal(size=(count, 1)))
        rows = (loud * random.normal(size=(count, WIDTH))).astype(np.float32)
        return [Sample(f"{i}", {"x": each}) for i, each in enumerate(rows)]

    b = GraphBuilder("perceptron")
    graph = b.finish(layer(b, layer(b, b.input("x", float_type(1, WIDTH)), "first", 1, lo=0.0), "y", 3))
    by_ranges = []
    for seed in (5, 6, 7):
        kept, fresh = drawn(16, seed), drawn(64, 10 * seed)
        few, many = made(graph, kept), of_many(graph, kept)
        found, plain = repaired(Recipe(), few, kept), repaired(Recipe(), many, kept)
        assert level(few, found.recipe, kept) >= level(many, plain.recipe, kept) - NO_RANGE_DB
        assert level(few, found.recipe, fresh) > 35.0
        by_ranges.append(level(many, plain.recipe, fresh))
    assert min(by_ranges) < 25.0


@pytest.mark.parametrize("recipe", [*DECIDED, Recipe(rules=(Rule(Match(operator="Gemm"), dtype="int8"),))])
def test_what_a_recipe_states_stays(recipe: Recipe) -> None:
    kept = sounds(16, 5)
    quantizer = made(perceptron(), kept)
    assert not measured(quantizer, repaired(recipe, quantizer, kept).recipe)


def test_all_layers_measure_their_rows_where_that_is_better_than_those_of_even_inputs() -> None:
    kept = [replace(each, inputs={"x": np.abs(each.inputs["x"])}) for each in sounds(16, 5)]
    quantizer = made(perceptron(), kept)
    assert ALL in [each.what for each in repaired(Recipe(), quantizer, kept).repairs]
    recipe = Recipe(rules=(Rule(Match(name="second"), dtype="int8"),))
    assert measured(quantizer, repaired(recipe, quantizer, kept).recipe) == {"x", "second"}


def gated() -> Graph:
    """A gated block with a residual sum around its last layer: int8 takes little time for light nodes."""
    b = GraphBuilder("gated")
    total = b.node(Add(), *(b.input(name, float_type(TOKENS, WIDTH)) for name in "xz"))
    h = layer(b, total, "first", 1, lo=0.0, quiet=QUIET)
    h = b.node(Add(), layer(b, h, "second", 2), total)
    for _ in range(4):
        h = b.node(Mul(), b.node(Tanh(), h), b.node(Sigmoid(), h))
    return b.finish(b.node(Add(), layer(b, h, "last", 3), h))


def test_light_nodes_between_rows_are_float_where_rows_alone_win_little() -> None:
    def drawn(count: int, seed: int) -> list[Sample]:
        """Samples of all rows: a loud one and a quiet one in turn."""
        loud = np.random.default_rng(seed).normal(size=(count, 2, TOKENS, WIDTH)).astype(np.float32)
        loud[::2, ..., HALF:] = 0.0
        loud[1::2, ..., :HALF] = 0.0
        loud[1::2] *= QUIET
        shape = (TOKENS, WIDTH)
        return [Sample(f"{i}", {"x": x, "z": z}, whole=shape) for i, (x, z) in enumerate(loud)]

    kept, fresh = drawn(8, 5), drawn(24, 77)
    quantizer = made(gated(), kept)
    plain = Stage.first(Recipe(), quantizer, kept)
    found = with_rows(plain, Recipe(), quantizer, lambda recipe: Stage(recipe, quantizer, plain.runs))
    assert found is not None and found[1].what == f"{ALL}, and light nodes are float"
    rows, light = found[0].recipe.rules
    assert (rows.dtype, light.dtype) == ("dynamic", "float")
    reached = level(quantizer, found[0].recipe, fresh)
    assert reached > level(quantizer, Recipe(), fresh) + 10.0
    assert reached > level(quantizer, Recipe(rules=(rows,)), fresh) + 10.0


def classifier() -> Graph:
    """Convolutions that lose much, and a head that loses little."""
    b = GraphBuilder("classifier")
    x = b.input("x", float_type(1, 3, 6, 6))
    random = np.random.default_rng(4)
    for number, channels in enumerate((3, 16, 16)):
        w = random.normal(size=(16, channels, 3, 3)) / np.sqrt(9 * channels)
        spread = np.exp(random.uniform(-4.0, 4.0, (16, 1, 1, 1)))
        none = b.constant(f"b{number}", np.zeros(16, np.float32))
        weights = b.constant(f"w{number}", (w * spread).astype(np.float32))
        x = b.node(Conv(pads=(1, 1, 1, 1)), x, weights, none, name=f"conv{number}")
    pooled = b.node(Reshape((1, 16)), b.node(GlobalAveragePool(), x), name="flat")
    return b.finish(layer(b, pooled, "y", 6))


def test_a_head_that_is_not_at_fault_is_not_tried() -> None:
    """Nothing is quantized and compiled again for it: one rehearsal tells that it can win nothing."""
    random = np.random.default_rng(8)
    drawn = [Sample(f"{i}", {"x": random.normal(size=(3, 6, 6)).astype(np.float32)}) for i in range(16)]
    quantizer = made(classifier(), drawn)
    stage, tried = Stage.first(Recipe(), quantizer, drawn), list[Recipe]()

    def counted(recipe: Recipe) -> Stage:
        tried.append(recipe)
        return Stage(recipe, quantizer, stage.runs)

    assert stage.sqnr_db < 45.0
    assert with_rows(stage, Recipe(), quantizer, counted) is None and not tried


def detector() -> Graph:
    """A small convolution before a recurrent layer of one step, which has most of the multiplications."""
    b, random = GraphBuilder("detector"), np.random.default_rng(9)

    def weights(name: str, *shape: int) -> Value:
        return b.constant(name, (random.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32))

    x, state = b.input("x", float_type(1, 2, 1, HALF)), b.input("h", float_type(1, WIDTH))
    none = b.constant("none", np.zeros(2, np.float32))
    frames = b.node(Conv(), x, weights("k", 2, 2, 1, 1), none, name="frames")
    flat = b.node(Reshape((1, WIDTH)), frames, name="flat")
    start = b.constant("start", np.zeros(3 * WIDTH, np.float32))
    sums = b.node(Gemm(), flat, weights("w", WIDTH, 3 * WIDTH), start, name="sums")
    given = b.node(Reshape((1, 1, 3 * WIDTH)), sums)
    states = b.node(GRU, given, weights("r", WIDTH, 3 * WIDTH), state, state, name="states")
    new = b.node(Slice((1, 0, 0), (2, 1, WIDTH), (1, 1, 1)), states, name="new")
    return b.finish(new)


def test_few_convolutions_before_a_recurrent_layer_are_float_with_its_rows() -> None:
    def drawn(count: int, seed: int) -> list[Sample]:
        """Loud and quiet frames in turn."""
        random, samples = np.random.default_rng(seed), []
        for number in range(count):
            x, h = (random.normal(size=shape).astype(np.float32) for shape in ((2, 1, HALF), (WIDTH,)))
            loud = np.float32(1.0 if number % 2 else 40.0)
            samples.append(Sample(f"{number}", {"x": x * loud, "h": np.tanh(h)}))
        return samples

    kept, fresh = drawn(16, 5), drawn(40, 77)
    quantizer = made(detector(), kept)
    recipe, _ = without_range(Recipe(), quantizer.graph, quantizer.statistics)
    found = repaired(recipe, quantizer, kept)
    assert f"{ONE}, and light nodes are float, as is a product without rows" in [
        r.what for r in found.repairs
    ]
    assert level(quantizer, found.recipe, fresh) > level(quantizer, recipe, fresh) + 5.0


def test_attention_decides_without_a_search() -> None:
    kept = texts(8)
    quantizer = made(bert(), kept)
    stage = Stage.first(Recipe(), quantizer, kept)
    assert with_rows(stage, Recipe(), quantizer, lambda recipe: Stage(recipe, quantizer, stage.runs)) is None
