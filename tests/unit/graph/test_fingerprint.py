"""Structural ids depend on what is computed and on nothing else."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qglow.graph.fingerprint import content_digest, fingerprint, structural_ids
from qglow.graph.text import parse_graph
from tests.fuzzing import examples
from tests.unit.graph.random_graphs import random_graph

TEXT = """
graph g (%x: float<1 x 2>, %z: float<1 x 2>) -> (%y) {
  %w: float<2 x 2> = constant {1.0, 2.0, 3.0, 4.0}
  %a: float<1 x 2> = Gemm @a (%x, %w) {lo=0.0}
  %b: float<1 x 2> = Relu @b (%z)
  %y: float<1 x 2> = Sub @y (%a, %b)
}
"""


def ids(text: str) -> dict[str, str]:
    return {value.name: digest for value, digest in structural_ids(parse_graph(text)).items()}


@settings(max_examples=examples(25))
@given(rng=st.randoms(use_true_random=False))
def test_names_do_not_matter(rng: random.Random) -> None:
    graph = random_graph(rng)
    expected, names = fingerprint(graph), [structural_ids(graph)[v] for v in graph.values()]
    for number, value in enumerate(graph.values()):
        value.name = f"v{number}"
    for number, node in enumerate(graph.nodes):
        node.name = f"n{number}"
    graph.name = "other"
    assert fingerprint(graph) == expected
    assert [structural_ids(graph)[v] for v in graph.values()] == names


def test_order_probes_and_absent_operands_do_not_matter() -> None:
    lines = TEXT.strip().split("\n")
    swapped = "\n".join([*lines[:2], lines[3], lines[2].replace("%w)", "%w, _)"), *lines[4:]])
    probed = TEXT.replace("  %y:", "  QuantizationProfile @p (%a)\n  %y:")
    assert (
        fingerprint(parse_graph(swapped))
        == fingerprint(parse_graph(probed))
        == fingerprint(parse_graph(TEXT))
    )


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("4.0}", "5.0}", {"w", "a", "y"}),
        ("lo=0.0", "lo=0.5", {"a", "y"}),
        ("Relu @b", "Tanh @b", {"b", "y"}),
        ("(%a, %b)", "(%b, %a)", {"y"}),
        ("%z: float<1 x 2>", "%z: float<3 x 2>", {"z", "b", "y"}),
        ("(%x, %w)", "(%z, %w)", {"a", "y"}),
    ],
)
def test_a_change_shows_in_everything_that_depends_on_it(old: str, new: str, changed: set[str]) -> None:
    text = TEXT.replace(old, new)
    before, after = ids(TEXT), ids(text)
    assert {name for name in before if before[name] != after[name]} == changed
    assert fingerprint(parse_graph(text)) != fingerprint(parse_graph(TEXT))


def test_equal_computations_have_one_id_and_other_inputs_another() -> None:
    text = TEXT.replace("Relu @b (%z)", "Gemm @b (%x, %w) {lo=0.0}")
    found = ids(text)
    assert found["a"] == found["b"] and found["x"] != found["z"]


def test_ids_are_the_same_in_every_version() -> None:
    """They are stored in profiles: a change of the scheme needs a new format version there."""
    assert ids(TEXT)["y"] == "4b2e0a5ec5a2751d33670b973b2619c2"


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_digest_is_of_the_content_whatever_was_hashed_before(size: int) -> None:
    digests = {content_digest(np.full(size, number, np.float32)) for number in range(5) for _ in range(3)}
    assert len(digests) == 5  # arrays come and go, and may lie where others lay


def test_a_large_array_cannot_change_once_its_digest_is_known() -> None:
    array = np.zeros(100_000, np.float32)
    digest = content_digest(array)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1.0
    assert content_digest(array) == digest == content_digest(array.copy())
