"""Recognition of attention regions by structure, and what the schemes make of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from qglow.core.types import Array, ElementType, TensorType
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.interpreter import Interpreter
from qglow.graph.operator import KeepFloat, Operator
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add, Relu, Sub
from qglow.graph.ops.functions import Gelu
from qglow.graph.ops.movement import Gather, Slice
from qglow.graph.ops.normalization import Affine, InstanceNormalization
from qglow.graph.ops.pool import AveragePool
from qglow.graph.ops.shape import Reshape, Transpose
from qglow.graph.text import print_graph
from qglow.profiling.engine import InterpreterEngine
from qglow.profiling.profile import Profile
from qglow.profiling.profiler import profile
from qglow.profiling.samples import Sample
from qglow.quantization.attention_region import Role, attention_region
from qglow.quantization.choices import Choices
from qglow.quantization.pipeline import QuantizedGraph, quantize
from qglow.quantization.scheme import IN_ATTENTION
from qglow.recipe import Match, Rule
from qglow.recipe.choices import BlockFormat, Calibration
from qglow.recipe.rules import ROLES
from qglow.recipe.schema import Recipe
from tests.unit.profiling.networks import MODEL
from tests.unit.quantization.attention_networks import (
    DEPTH,
    HIDDEN,
    TOKENS,
    WIDTH,
    Network,
    bert,
    embedded,
    gated_convolutions,
    llama,
    similarity,
    vision,
)

NETWORKS = {"bert": bert, "llama": llama, "vision": vision}


def roles(graph: Graph) -> dict[str, Role]:
    return {node.output.name: role for node, role in attention_region(graph).roles.items()}


def named(graph: Graph, name: str) -> Node:
    return next(node for node in graph.nodes if name in (node.name, node.output.name))


def products(graph: Graph) -> set[str]:
    return {node.output.name for node in attention_region(graph).products}


@pytest.mark.parametrize("masked", ["add", "where"])
def test_bert_is_one_region(masked: str) -> None:
    graph = bert(masked)
    found = roles(graph)
    assert {found[f"{block}.scores"] for block in "ab"} == {Role.SCORES}
    assert {found[f"{block}.mixed"] for block in "ab"} == {Role.MIXTURE}
    assert {found[f"{block}.{name}"] for block in "ab" for name in ("masked", "softmax")} == {Role.SOFTMAX}
    assert {found[f"{block}.{name}"] for block in "ab" for name in ("q.split", "keys")} == {Role.HEADS}
    assert {found[f"{block}.sum{number}"] for block in "ab" for number in (1, 2)} == {Role.SUM}
    assert {found[f"{block}.norm{number}"] for block in "ab" for number in (1, 2)} == {Role.NORM}
    assert {found[f"{block}.gelu"] for block in "ab"} == {Role.GATE}
    assert found["norm0"] is Role.NORM and "positions" in found
    rest = {n.output.name for n in graph.nodes if n.operator.accumulate is None} - found.keys()
    assert rest == {"words", "head.shape"}
    assert products(graph) == {n.output.name for n in graph.nodes if n.operator.accumulate is not None}


def test_llama_is_one_region_with_its_gates() -> None:
    graph = llama()
    found = roles(graph)
    assert {found[f"{block}.{name}"] for block in "ab" for name in ("swish", "product")} == {Role.GATE}
    assert {found[f"{block}.{name}"] for block in "ab" for name in ("qr", "kr")} == {Role.HEADS}
    assert {found[f"{block}.sum{number}"] for block in "ab" for number in (1, 2)} == {Role.SUM}
    assert {"a.norm1.mean", "b.norm2.div", "last", "last.mean"} <= found.keys()
    rest = {n.output.name for n in graph.nodes if n.operator.accumulate is None} - found.keys()
    assert rest == {"words", "head.shape"}


def test_narrow_embeddings_that_a_product_widens_are_inside() -> None:
    """In int8 the positions of one length would have a scale that those of others have not."""
    network = Network()
    words = network.builder.input("tokens", TensorType(ElementType.INT64, (1, TOKENS)))
    table = network.add(Gather(0), network.constant(200, DEPTH, scale=1.0), words, name="words")
    summed = network.add(Add(), table, network.constant(TOKENS, DEPTH), name="positions")
    x = network.block(network.linear(summed, WIDTH, "widened"), "a")
    graph = network.finish(network.linear(x, 5, "head"))
    region = attention_region(graph)
    positions = next(node for node in graph.nodes if node.output.name == "positions")
    assert positions in region.roles
    assert any(node.output.name == "widened" for node in region.products)


def mixed(blocks: int, activation: Operator) -> Graph:
    """Tokens that a product with weights mixes, and feed-forward branches behind norms; no attention."""
    network = Network()
    x = network.linear(network.input(1, TOKENS, WIDTH), WIDTH, "stem")
    for number in range(blocks):
        turned = network.add(Transpose((0, 2, 1)), x, name=f"turned{number}")
        mixing = network.add(Transpose((0, 2, 1)), network.linear(turned, TOKENS, f"mixing{number}"))
        normed = network.norm(mixing, f"norm{number}")
        up = network.add(activation, network.linear(normed, HIDDEN, f"up{number}"), name=f"active{number}")
        x = network.add(Add(), x, network.linear(up, WIDTH, f"down{number}"), name=f"sum{number}")
    return network.finish(network.linear(x, 5, "head"))


def test_networks_that_mix_tokens_without_attention_have_the_same_stream() -> None:
    found = roles(mixed(2, Gelu()))
    assert {found[f"sum{number}"] for number in range(2)} == {Role.SUM}
    assert {found[f"norm{number}"] for number in range(2)} == {Role.NORM}
    assert {found[f"active{number}"] for number in range(2)} == {Role.GATE}
    assert {f"{name}{number}" for name in ("mixing", "up", "down") for number in range(2)} <= products(
        mixed(2, Gelu())
    )


@pytest.mark.parametrize(("blocks", "activation"), [(1, Gelu()), (3, Relu())])
def test_one_branch_or_such_as_clamp_make_no_region(blocks: int, activation: Operator) -> None:
    assert not roles(mixed(blocks, activation))


def pooled(activation: Operator, scaled: bool) -> Graph:
    """Pixels that pooling mixes, and branches behind group norms as their pieces, as PoolFormer has them."""
    network = Network()

    def norm(x: Value, name: str) -> Value:
        flat = network.add(Reshape((1, 1, WIDTH * 16)), x, name=f"{name}.flat")
        one, zero = network.constant(1, scale=1.0), network.constant(1, scale=0.0)
        normed = network.add(InstanceNormalization(), flat, one, zero, name=name)
        back = network.add(Reshape((1, WIDTH, 4, 4)), normed, name=f"{name}.back")
        if not scaled:
            return back
        factors, shifts = network.constant(WIDTH, scale=1.0), network.constant(WIDTH)
        return network.add(Affine(), back, factors, shifts, name=f"{name}.scaled")

    stem = Conv(strides=(2, 2), pads=(1, 1, 1, 1))
    x = network.add(stem, network.input(1, 3, 8, 8), network.constant(WIDTH, 3, 3, 3), None, name="stem")
    for number in range(2):
        first = norm(x, f"first{number}")
        pool = AveragePool(kernel=(3, 3), pads=(1, 1, 1, 1))
        mean = network.add(pool, first, name=f"pool{number}")
        x = network.add(Add(), x, network.add(Sub(), mean, first, name=f"rest{number}"), name=f"sum{number}")
        weights = network.constant(HIDDEN, WIDTH, 1, 1), network.constant(WIDTH, HIDDEN, 1, 1)
        up = network.add(Conv(), norm(x, f"norm{number}"), weights[0], None, name=f"up{number}")
        active = network.add(activation, up, name=f"active{number}")
        down = network.add(Conv(), active, weights[1], None, name=f"down{number}")
        x = network.add(Add(), x, down, name=f"out{number}")
    return network.finish(x)


@pytest.mark.parametrize("scaled", [False, True])
def test_group_norms_as_their_pieces_begin_branches_too(scaled: bool) -> None:
    graph = pooled(Gelu(), scaled)
    found = roles(graph)
    assert {found[f"norm{number}"] for number in range(2)} == {Role.NORM}
    assert {found[f"active{number}"] for number in range(2)} == {Role.GATE}
    # The patches of the stem are what the stream begins with: the first sum belongs to it too.
    assert {found[f"{name}{number}"] for name in ("sum", "out") for number in range(2)} == {Role.SUM}
    assert {"stem", "up0", "down0", "up1", "down1"} == products(graph)
    assert all(found[f"{name}{number}"] for name in ("pool", "rest") for number in range(2))


def test_instance_norms_between_convolutions_that_clamp_make_no_region() -> None:
    assert not roles(pooled(Relu(), scaled=True))


def test_stem_and_decoder_of_convolutions_are_outside() -> None:
    graph = vision()
    found = roles(graph)
    outside = {"stem.relu", "stem.sum", "decoder.gate"}
    assert not outside & found.keys()
    assert {"rows", "tokens", "positions", "a.sum1", "a.gelu", "columns"} <= found.keys()


@pytest.mark.parametrize("network", [gated_convolutions, similarity])
def test_other_softmaxes_and_gates_are_no_attention(network: object) -> None:
    assert not attention_region(network()).roles  # type: ignore[operator]


def test_a_softmax_over_another_axis_is_no_attention() -> None:
    graph = bert()
    for node in graph.nodes:
        if node.operator.name == "Softmax":
            node.operator = replace(node.operator, axis=1)  # type: ignore[call-arg]
    assert not {Role.SCORES, Role.MIXTURE} & set(attention_region(graph).roles.values())


def profiled(graph: Graph) -> Profile:
    return profile(graph, iter(samples(graph)), InterpreterEngine(lambda batch: graph), model=MODEL)


def samples(graph: Graph) -> list[Sample]:
    (given,) = graph.inputs
    random = np.random.default_rng(1)
    if not given.type.is_float:
        return [Sample(str(i), {given.name: random.integers(0, 20, TOKENS)}) for i in range(12)]
    shape = given.type.shape[1:]
    return [Sample(str(i), {given.name: random.normal(size=shape).astype(np.float32)}) for i in range(12)]


def quantized(graph: Graph, recipe: Recipe) -> QuantizedGraph:
    return quantize(graph, profiled(graph), recipe)


def float_nodes(made: QuantizedGraph) -> dict[str, str]:
    return {node.name: node.reason for node in made.report.float_nodes}


@pytest.mark.parametrize("name", NETWORKS)
def test_products_with_weights_are_int8_and_all_else_says_why_it_is_not(name: str) -> None:
    graph = NETWORKS[name]()
    reasons = float_nodes(quantized(graph, Recipe()))
    for node, role in attention_region(graph).roles.items():
        own = isinstance(node.operator.policy, KeepFloat)
        assert own or reasons.get(node.name, role.reason) == role.reason, node
    assert reasons[named(graph, "a.sum1").name] == "transformer: residual sum stays float"
    head = {named(graph, "head").name} if name == "bert" else set()
    assert {node.name for node in graph.nodes if node.operator.accumulate} & reasons.keys() == head
    assert not {n.name for n in graph.nodes if n.output.name in ("stem.sum", "decoder.gate")} & reasons.keys()


def test_what_moves_the_input_of_products_is_int8() -> None:
    graph = bert()
    reasons = float_nodes(quantized(graph, Recipe()))
    for name in ("a.q.rows", "a.back", "a.joined", "a.down.rows"):
        assert named(graph, name).name not in reasons
    for name in ("a.q.split", "a.keys"):
        assert "queries" in reasons[named(graph, name).name]


def test_the_input_of_a_product_behind_a_gate_is_int16() -> None:
    made = quantized(llama(), Recipe())
    wide = {
        node.name
        for node in made.graph.nodes
        for value in node.inputs
        if value is not None and value.type.quantization is not None and value.type.quantization.is_wide
    }
    assert {named(llama(), f"{block}.down").name for block in "ab"} <= wide
    assert not any(named(llama(), f"{block}.up").name in wide for block in "ab")


def looked_up(graph: Graph, word: int) -> Array:
    """What both networks add positions to, for a sequence of one word."""
    taps: dict[str, Array] = {}
    add = named(graph, "positions")
    tokens = {"tokens": np.full((1, TOKENS), word)}
    Interpreter(graph).run(tokens, lambda value, array: taps.update({value.name: array}))
    words = next(value for value in add.inputs if value is not None and not value.is_constant)
    return taps[words.name]


def test_tables_of_embeddings_have_a_scale_for_each_row() -> None:
    graph = bert()
    lookup = named(graph, "words")
    table = lookup.inputs[0]
    assert table is not None and table.data is not None
    table.data[3] *= np.float32(1e-4)
    table.data[4] = 0.0
    made = quantized(graph, Recipe())
    assert lookup.name not in float_nodes(made)
    assert lookup.name in {node.name for node in made.report.quantized}
    for word in (2, 3, 4):
        found, wanted = looked_up(made.graph, word)[0, 0], table.data[word]
        assert np.max(np.abs(found - wanted)) <= np.max(np.abs(wanted)) / 200.0


def test_a_table_that_saves_nothing_stays_float() -> None:
    """The rounding of a type of tokens would be the same in all of them."""
    network = Network()
    words = embedded(network)
    kinds = network.builder.input("kinds", TensorType(ElementType.INT64, (1, TOKENS)))
    types = network.add(Gather(0), network.constant(2, WIDTH, scale=1.0), kinds, name="types")
    x = network.block(network.norm(network.add(Add(), words, types, name="both"), "norm0"), "a")
    graph = network.finish(network.linear(x, 3, "head"))
    random = np.random.default_rng(1)
    feeds = [
        {"tokens": random.integers(0, 20, TOKENS), "kinds": random.integers(0, 2, TOKENS)} for _ in range(8)
    ]
    kept = (Sample(str(number), each) for number, each in enumerate(feeds))
    seen = profile(graph, kept, InterpreterEngine(lambda batch: graph), model=MODEL, batch_size=1)
    reasons = float_nodes(quantize(graph, seen, Recipe()))
    assert "too small" in reasons[named(graph, "types").name]
    assert named(graph, "words").name not in reasons


def test_a_table_stays_float_by_rule_and_pattern() -> None:
    graph = bert()
    for recipe in (Recipe(keep_float=("words",)), Recipe(rules=(Rule(Match(name="words"), dtype="float"),))):
        made = quantized(graph, recipe)
        assert "kept by" in float_nodes(made)[named(graph, "words").name]
        assert not any("scales" in value.name for value in made.graph.constants())


def test_rules_come_before_the_policy() -> None:
    rules = (
        Rule(Match(name=r"a\.sum1|a\.scores"), dtype="int8"),
        Rule(Match(name=r"a\.down(\.rows)?"), dtype="int8"),
        Rule(Match(name=r"b\.up"), dtype="float"),
    )
    graph = llama()
    reasons = float_nodes(quantized(graph, Recipe(rules=rules)))
    assert named(graph, "a.scores").name not in reasons
    assert named(graph, "a.sum1").name not in reasons
    assert named(graph, "b.sum1").name in reasons
    assert reasons[named(graph, "b.up").name].startswith("kept by rule 3")
    choices = Choices.of(graph, Recipe(rules=rules))
    assert not choices.of_node(named(graph, "a.down")).wide
    assert choices.of_node(named(graph, "b.down")).wide


def test_rules_know_all_roles() -> None:
    assert [role.name.lower() for role in Role] == list(ROLES)


@pytest.mark.parametrize("scheme", ["auto", "transformer"])
def test_scores_are_int8_where_a_rule_by_role_says_so(scheme: str) -> None:
    """Queries and keys are quantized where they are computed: what moves them is int8, too."""
    graph = bert()
    made = quantized(graph, Recipe(scheme=scheme, rules=(Rule(Match(role="scores"), dtype="int8"),)))
    reasons = float_nodes(made)
    for block in "ab":
        for name in ("scores", "q.split", "keys"):
            assert named(graph, f"{block}.{name}").name not in reasons
        assert reasons[named(graph, f"{block}.mixed").name] == Role.MIXTURE.reason
        product = named(made.graph, f"{block}.scores")
        assert product.output.type.is_float
        assert all(kind.element is ElementType.INT8 for kind in product.input_types())
    assert not made.report.warnings


def test_movement_that_float_nodes_read_too_stays_float() -> None:
    graph = llama()
    recipe = Recipe(rules=(Rule(Match(role="scores"), dtype="int8"),))
    reasons = float_nodes(quantized(graph, recipe))
    assert named(graph, "a.scores").name not in reasons
    assert reasons[named(graph, "a.qr").name] == Role.HEADS.reason


def test_a_rule_by_role_fits_nothing_without_attention() -> None:
    rules = (Rule(Match(role="scores"), dtype="int8"),)
    assert Choices.of(gated_convolutions(), Recipe(rules=rules)).unmatched == (
        "rule 1 of the recipe (role scores) fits no node or input",
    )


def test_calibration_of_a_region_holds_where_none_is_stated() -> None:
    graph = vision()
    default, stated = (
        Choices.of(graph, Recipe()),
        Choices.of(graph, Recipe(calibration=Calibration.parse("kl"))),
    )
    inside, outside = named(graph, "a.norm1"), named(graph, "stem.relu")
    assert default.of_node(inside).calibration == IN_ATTENTION
    assert default.of_node(outside).calibration == Calibration()
    assert stated.of_node(inside).calibration == stated.of_node(outside).calibration == Calibration()


def test_scheme_auto_changes_nothing_without_attention() -> None:
    graph = gated_convolutions()
    auto, cnn = (quantized(graph, Recipe(scheme=scheme)) for scheme in ("auto", "cnn"))
    assert print_graph(auto.graph) == print_graph(cnn.graph)


def test_scheme_cnn_makes_attention_int8() -> None:
    reasons = float_nodes(quantized(bert(), Recipe(scheme="cnn")))
    assert not any("transformer" in reason for reason in reasons.values())
    assert named(bert(), "a.sum1").name not in reasons


def test_scheme_transformer_needs_no_attention() -> None:
    graph = gated_convolutions()
    reasons = float_nodes(quantized(graph, Recipe(scheme="transformer")))
    assert reasons[named(graph, "sum").name] == "transformer: residual sum stays float"
    assert not {node.name for node in graph.nodes if node.operator.accumulate} & reasons.keys()


@pytest.mark.parametrize("choices", [{}, {"dynamic": True}, {"weights": BlockFormat.parse("int8:32")}])
def test_a_head_of_hardly_any_work_is_float(choices: dict[str, Any]) -> None:
    """A classifier of one token, whatever else is chosen; not where a rule has it, nor one of all tokens."""
    small, large = bert(), llama()
    reasons = float_nodes(quantized(small, Recipe(**choices)))
    head = named(small, "head").name
    assert reasons[head] == "transformer: a head with so little work saves nothing in int8"
    rule = Rule(Match(name=head), dtype="int8")
    assert head not in float_nodes(quantized(small, Recipe(rules=(rule,), **choices)))
    assert named(large, "head").name not in float_nodes(quantized(large, Recipe()))


def test_products_are_no_small_heads_where_a_larger_one_follows() -> None:
    network = Network()
    x = network.block(network.norm(network.input(1, TOKENS, WIDTH), "norm0"), "a")
    pooled = network.add(Slice((0, 0, 0), (1, 1, WIDTH), (1, 1, 1)), x, name="pooled")
    narrow = network.linear(pooled, 2, "narrow")
    graph = network.finish(network.linear(network.linear(narrow, 400, "wide"), 3, "last"))
    choices = Choices.of(graph, Recipe())
    policies = {name: choices.of_node(named(graph, name)).policy for name in ("narrow", "wide", "last")}
    assert policies["narrow"] == policies["wide"] == ""


def test_heads_beside_a_large_one_are_small_all_the_same() -> None:
    network = Network()
    x = network.block(network.norm(network.input(1, TOKENS, WIDTH), "norm0"), "a")
    pooled = network.add(Slice((0, 0, 0), (1, 1, WIDTH), (1, 1, 1)), x, name="pooled")
    small = network.linear(pooled, 3, "small")
    graph = network.finish(small, network.linear(x, 40, "large"))
    choices = Choices.of(graph, Recipe())
    kept = {name: bool(choices.of_node(named(graph, name)).policy) for name in ("small", "large")}
    assert kept == {"small": True, "large": False}


def test_auto_gives_way_where_all_shall_be_quantized() -> None:
    graph = llama()
    choices = Choices.of(graph, Recipe(assert_all_quantized=True))
    assert not any(choices.of_node(node).in_attention for node in graph.nodes)


def test_smoothing_moves_factors_from_norms_that_stay_float() -> None:
    graph = bert()
    head = Rule(Match(name=named(graph, "head").name), dtype="int8")
    made = quantized(graph, Recipe(smooth=0.5, rules=(head,)))
    moved = [entry.where for entry in made.report.log if entry.applied and "channels of %" in entry.what]
    assert named(graph, "b.norm2").name in moved
