"""Nodes in int16 and float, and the recipe that says so."""

from __future__ import annotations

from pathlib import Path

from qglow.quantization.choices import Choices
from qglow.recipe.loading import parse_recipe
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe
from qglow.tuning.mix import Mix, with_mix
from tests.unit.profiling.networks import residual_network


def test_names_that_look_like_patterns_are_taken_as_names() -> None:
    recipe = with_mix(Recipe(keep_float=("x",)), Mix(("conv", "op:Add", "re:(1)")))
    assert recipe.keep_float == ("x", "conv", r"re:op:Add", r"re:re:\(1\)")
    assert recipe.rules == ()


def test_what_becomes_float_is_int16_no_more() -> None:
    assert Mix.joined([]) == Mix() and not Mix()
    assert Mix.joined([Mix((), ("a", "b")), Mix(("b", "c")), Mix(("c",), ("d",))]) == Mix(
        ("b", "c"), ("a", "d")
    )
    assert str(Mix(("a",), ("b", "c"))) == "1 more nodes in float, 2 in int16"


def test_nodes_in_16_bit_floats_are_in_no_other_precision() -> None:
    parts = [Mix((), ("a", "b"), ("c",)), Mix(("d",), (), ("a",), ("e",)), Mix(("c",), ("e", "f"))]
    joined = Mix.joined(parts)
    assert joined == Mix(("d", "c"), ("b", "f"), ("a",), ("e",))
    assert joined and Mix(bfloat16=("x",))
    assert str(joined) == "2 more nodes in float, 2 in int16, 1 in float16, 1 in bfloat16"
    mixed = with_mix(Recipe(), joined)
    assert parse_recipe(mixed.to_yaml(), "recipe") == mixed
    assert [(rule.match.name, rule.dtype) for rule in mixed.rules] == [
        ("b|f", "int16"), ("a", "float16"), ("e", "bfloat16"),
    ]  # fmt: skip


def test_the_recipe_survives_its_file_and_its_rule_is_over_the_others(tmp_path: Path) -> None:
    graph = residual_network()
    conv, total = (node.name for node in graph.nodes if node.output.name in ("stem", "total"))
    own = Rule(Match(name=".*"), dtype="int8", schema="symmetric")
    mixed = with_mix(Recipe(rules=(own,)), Mix((total,), (conv, "a+(b)|c")))
    assert parse_recipe(mixed.to_yaml(), "recipe") == mixed
    assert mixed.rules[0] == own
    assert mixed.rules[1].match.fits_name("a+(b)|c") and not mixed.rules[1].match.fits_name("c")
    choices = Choices.of(graph, mixed)
    assert {name for name, choice in choices.nodes.items() if choice.wide} == {conv}
    assert choices.nodes[conv].schema.name == "symmetric"
