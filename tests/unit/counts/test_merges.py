"""Places of axes that reshapes merge: how many parts, and how many live places of each."""

from __future__ import annotations

from fractions import Fraction
from math import prod

import pytest

from qglow.core.errors import UnsupportedError
from qglow.core.types import Shape, float_type
from qglow.counts.count import Count
from qglow.counts.merges import Merged, Merges
from qglow.counts.samples import AlignedGraphs, SizedGraph
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.ops.reduce import CumSum
from qglow.graph.ops.shape import Reshape

N, T = Count((("N", 1),)), Count((("T", 1),))
SIZES = [{"N": 8, "T": 16}, {"N": 7, "T": 16}, {"N": 8, "T": 14}, {"N": 4, "T": 7}]
ROWS = Merged(Count((), 5), N, 8)
Sizes = dict[str, int]
Shapes = tuple[str | int, ...]


def at(shape: Shapes, sizes: Sizes) -> Shape:
    """A shape for these sizes, whose extents are products such as `5 * N`."""
    factors = [str(extent).split(" * ") for extent in shape]
    return tuple(prod(sizes.get(factor) or int(factor) for factor in parts) for parts in factors)


def graph(sizes: Sizes, *shapes: Shapes, running: bool = False) -> Graph:
    """Reshapes of x from each shape to the next."""
    builder = GraphBuilder("rows")
    value = builder.input("x", float_type(*at(shapes[0], sizes)))
    for place, shape in enumerate(shapes[1:]):
        value = builder.node(Reshape(at(shape, sizes)), value, name=f"r{place}")
    if running:
        value = builder.node(CumSum(0), value)
    return builder.finish(value)


def noted(*shapes: Shapes, running: bool = False) -> list[dict[int, Merged]]:
    """Merged axes of the results of nodes, where each axis has its effect noted, as a conversion does."""
    samples = AlignedGraphs([SizedGraph(sizes, graph(sizes, *shapes, running=running)) for sizes in SIZES])
    merges, found = Merges(samples, samples.counts), []
    for node in samples.bound.nodes:
        value = node.inputs[0]
        assert value is not None
        known: dict[int, Merged] = {}
        for axis in range(len(value.type.shape)):
            effect = merges.effect(node, 0, axis) or samples.effect(node, 0, axis)
            if effect is not None:
                merges.note(node, 0, axis, effect)
                if effect.axis is not None and merges.is_merged(node.output, effect.axis):
                    known[effect.axis] = merges._merged[node.output, effect.axis]
        counts = {axis: merged.outer.times(merged.extent) for axis, merged in known.items()}
        samples.note(node.output, counts, [*known])
        found.append(known)
    return found


@pytest.mark.parametrize(
    ("tokens", "rows", "merged"),
    [
        (("N", "T", 6), ("N * T", 6), Merged(N, T, 16)),
        ((5, "N", 6), ("5 * N", 6), ROWS),
        ((5, "4 * N", 6), ("5 * N", 24), ROWS),
        ((5, "N", 4, 6), ("20 * N", 6), Merged(Count((), 5), N.times(4), 32)),
        ((2, 3, "N", 6), ("6 * N", 6), Merged(Count((), 6), N, 8)),
        (("N", 3, "T", 6), ("3 * N * T", 6), Merged(N.times(3), T, 16)),
    ],
)
def test_rows_are_merged_and_divided_again(tokens: Shapes, rows: Shapes, merged: Merged) -> None:
    assert noted(tokens, rows, tokens) == [{0: merged}, {}]
    assert noted(tokens, rows, rows) == [{0: merged}, {0: merged}]


def test_places_of_rows_are_parts_of_others() -> None:
    """Rows of heads are those of tokens, each of four."""
    more, fewer = Merged(N, T.times(4), 64), Merged(N, T, 16)
    shapes = ("N", "T", 24), ("N * T", 24), ("4 * N * T", 6), ("N * T", 4, 6), ("N", "T", 24)
    assert noted(*shapes) == [{0: fewer}, {0: more}, {0: fewer}, {}]


@pytest.mark.parametrize("rows", [("N * T", 6), ("T * N", 1, 6)])
def test_one_outer_place_merges_nothing(rows: Shapes) -> None:
    assert noted((1, "N", 6), ("N", 6)) == [{}]
    assert noted((1, "N", "T", 6), rows)[0] == {0: Merged(N, T, 16)}


@pytest.mark.parametrize(
    ("other", "left"),
    [
        ((1, "5 * N", 6), {1: ROWS}),
        (("5 * N", 3, 2), {0: ROWS}),
        (("5 * N", 6, 1), {0: ROWS}),
        ((5, "3 * N", 2), {}),
        ((5, 1, "N", 6), {}),
    ],
)
def test_rows_stay_or_are_divided(other: Shapes, left: dict[int, Merged]) -> None:
    assert noted((5, "N", 6), ("5 * N", 6), other) == [{0: ROWS}, left]


def test_rows_are_not_divided_otherwise() -> None:
    with pytest.raises(UnsupportedError, match="combines the 5 by N places"):
        noted((5, "N", 6), ("5 * N", 6), ("N", 5, 6))


def test_running_sums_of_rows_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="CumSum.* combines the 5 by N places"):
        noted((5, "N", 6), ("5 * N", 6), running=True)


def test_places_that_would_be_cut_are_no_places() -> None:
    merged = Merged(N, T, 16)
    assert merged.rescaled(48) == Merged(N, T.times(3), 48)
    assert merged.rescaled(8) is None
    assert N.times(4).scaled(Fraction(1, 4)) == N
