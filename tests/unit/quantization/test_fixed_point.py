"""Which values get fixed point: all of a recipe, those of a rule and what moves them, none of int16."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qglow.core.errors import QglowError
from qglow.core.types import Quantization
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter
from qglow.graph.text import constant_data, parse_graph, print_graph
from qglow.graph.verifier import verify_graph
from qglow.quantization.pipeline import quantize
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe
from tests.unit.profiling.networks import profile_of, residual_network


def made(recipe: Recipe) -> Graph:
    graph = residual_network()
    return quantize(graph, profile_of(), recipe).graph


def fixed(graph: Graph) -> set[str]:
    """Names of values whose sums are in fixed point."""
    known = {value.name: value.type.quantization for value in graph.values()}
    return {name for name, scale in known.items() if scale is not None and scale.fixed_point}


def test_a_recipe_marks_every_int8_value_but_weights() -> None:
    plain, graph = made(Recipe()), made(Recipe(requantization="fixed"))
    int8 = {v.name for v in graph.values() if is_activation(v.type.quantization)}
    assert fixed(plain) == set() and fixed(graph) == int8 != set()
    verify_graph(graph, "in fixed point")
    without = [
        replace(q, fixed_point=False) for v in graph.values() if (q := v.type.quantization) is not None
    ]
    assert without == [q for v in plain.values() if (q := v.type.quantization) is not None]


def is_activation(scale: Quantization | None) -> bool:
    return scale is not None and scale.axis is None


def test_results_differ_by_single_steps() -> None:
    plain, graph = made(Recipe()), made(Recipe(requantization="fixed"))
    shape = graph.inputs[0].type.shape
    x = {graph.inputs[0].name: np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    one, other = (next(iter(Interpreter(g).run(x).values())) for g in (plain, graph))
    assert not np.array_equal(one, other)
    assert np.abs(one - other).max() < 0.1 * np.abs(one).max()


def test_a_rule_marks_what_its_nodes_give() -> None:
    plain = made(Recipe())
    conv = next(node for node in plain.nodes if node.operator.name == "Conv")
    rule = Rule(Match(name=conv.output.name), requantization="fixed")
    graph = made(Recipe(rules=(rule,)))
    assert conv.output.name in fixed(graph) and fixed(graph) < {v.name for v in graph.values()}
    back = Rule(Match(name=conv.output.name), requantization="float")
    assert conv.output.name not in fixed(made(Recipe(requantization="fixed", rules=(back,))))


def test_values_and_sums_of_16_bits_keep_floats() -> None:
    rule = Rule(Match(operator="Conv"), dtype="int16")
    graph = made(Recipe(requantization="fixed", rules=(rule,)))
    wide = [v for v in graph.values() if (q := v.type.quantization) is not None and q.is_wide]
    assert wide and not fixed(graph) & {value.name for value in wide}
    for node in graph.nodes:
        policy = node.operator.accumulate
        x = None if policy is None else node.operand(policy.x)
        if x is not None and x in wide:
            assert node.output.name not in fixed(graph)
    verify_graph(graph, "with int16")


def test_texts_state_it() -> None:
    graph = made(Recipe(requantization="fixed"))
    text = print_graph(graph)
    assert " R:fixed]" in text
    constants = constant_data(graph)
    assert print_graph(parse_graph(text, constants)) == text
    with pytest.raises(QglowError, match="expected 'fixed', found 'even'"):
        parse_graph(text.replace("R:fixed", "R:even"), constants)


def test_unknown_arithmetic_is_refused() -> None:
    with pytest.raises(ValueError, match="requantization 'exact' is not one of float, fixed"):
        Recipe(requantization="exact")
