"""Factors of channels are searched for once, as long as nothing changes that the search reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from qglow.core.types import float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.fingerprint import fingerprint
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter
from qglow.graph.ops.conv import Conv
from qglow.numerics.schema import Schema
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.channel_factors import ALPHAS, Factors, FactorSearch
from qglow.quantization.pipeline import quantize_with
from qglow.quantization.scopes import NoScope, Scope, Scopes, producers_of
from qglow.quantization.searched_factors import SearchedFactors, SharedSearch, remembered
from qglow.recipe.choices import Calibration
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe

DATA = np.random.default_rng(0).normal(size=(8, 3, 6, 6)).astype(np.float32)
Statistics = dict[str, ValueProfile]


def network(largest: float = 3.0) -> Graph:
    b, random = GraphBuilder("scaled"), np.random.default_rng(3)
    x = b.input("x", float_type(8, 3, 6, 6))
    sizes = (10.0 ** np.linspace(-2.0, 1.0, 4)).reshape(4, 1, 1, 1)
    w = b.constant("w", (random.normal(size=(4, 3, 3, 3)) * sizes).astype(np.float32))
    inner = b.node(Conv(lo=0.0, hi=largest), x, w, name="inner")
    depthwise = b.constant("dw", random.normal(size=(4, 1, 3, 3)).astype(np.float32))
    return b.finish(b.node(Conv(group=4), inner, depthwise, name="y"))


def profiled(graph: Graph) -> Statistics:
    statistics: Statistics = {}

    def tap(value: object, array: np.ndarray) -> None:
        statistics[value.name] = ValueProfile.of_shape(array.shape)  # type: ignore[attr-defined]
        statistics[value.name].observe(array)  # type: ignore[attr-defined]

    Interpreter(graph).run({"x": DATA}, tap)
    return statistics


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of the nodes whose scopes are searched, one for each search."""
    found: list[str] = []
    search = FactorSearch.best

    def counted(self: FactorSearch, scope: Scope, alphas: tuple[float, ...] = ALPHAS) -> Factors:
        found.append(scope.producers[0].name)
        return search(self, scope, alphas)

    monkeypatch.setattr(FactorSearch, "best", counted)
    yield found


def test_recipes_that_differ_elsewhere_search_once_and_give_the_same_graphs(searches: list[str]) -> None:
    graph = network()
    statistics, searched = profiled(graph), SearchedFactors()
    rule = Rule(Match(name="y"), calibration=Calibration("minmax"))
    for recipe in (Recipe(), Recipe(correct_bias=False), Recipe(rules=(rule,))):
        before = len(searches)
        alone = quantize_with(graph, statistics, len(DATA), recipe)
        assert len(searches) == before + 1 and alone.rescaled
        together = quantize_with(graph, statistics, len(DATA), recipe, searched=searched)
        assert fingerprint(together.graph) == fingerprint(alone.graph)
        assert together.report == alone.report
        assert len(searches) == before + (2 if before == 0 else 1)
    assert len(searched) == 1
    quantize_with(graph, statistics, len(DATA), Recipe(schema="symmetric"), searched=searched)
    assert len(searched) == 2


def of_weights(graph: Graph, statistics: Statistics) -> None:
    value = graph.value("dw")
    assert value.data is not None
    value.data = value.data.copy()
    value.data[0, 0, 0, 0] = 100.0


def of_channels(graph: Graph, statistics: Statistics) -> None:
    seen = statistics["inner"]
    assert seen.channels is not None
    statistics["inner"] = replace(seen, channels=replace(seen.channels, high=seen.channels.high / 2))


def of_counts(graph: Graph, statistics: Statistics) -> None:
    counts = statistics["inner"].counts.copy()
    counts[np.argmax(counts)] += 1
    statistics["inner"] = replace(statistics["inner"], counts=counts)


def of_bounds(graph: Graph, statistics: Statistics) -> None:
    graph.nodes[0].operator = replace(graph.nodes[0].operator, hi=5.0)  # type: ignore[call-arg]


@pytest.mark.parametrize("change", [of_weights, of_channels, of_counts, of_bounds])
def test_a_change_of_what_the_search_reads_is_searched_anew(
    searches: list[str], change: Callable[[Graph, Statistics], None]
) -> None:
    graph, found = network(), SearchedFactors()
    statistics = profiled(graph)

    def best(samples: int = len(DATA), schema: Schema = Schema.asymmetric) -> Factors:
        search = SharedSearch(graph, statistics, samples, lambda value: schema, found)
        return search.best(Scopes(graph).of(next(producers_of(graph))))

    first = best()
    assert best() is first and len(searches) == 1
    best(schema=Schema.symmetric)
    best(samples=4)
    assert len(searches) == 3
    change(graph, statistics)
    changed = best()
    assert len(searches) == 4
    alone = FactorSearch(graph, statistics, len(DATA), lambda value: Schema.asymmetric)
    np.testing.assert_array_equal(
        changed.channels, alone.best(Scopes(graph).of(next(producers_of(graph)))).channels
    )


def test_a_refusal_is_remembered() -> None:
    known = SearchedFactors()

    def refuse() -> Factors:
        raise NoScope("no channel ranges")

    def fail() -> Factors:
        raise AssertionError("searched again")

    for search in (refuse, fail):
        with pytest.raises(NoScope, match="no channel ranges"):
            remembered(known, "a", search)
