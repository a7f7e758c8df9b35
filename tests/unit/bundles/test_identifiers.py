"""Names of models and tensors in C."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qglow.bundles.identifiers import distinct_identifiers, identifier


@given(st.text())
def test_every_name_becomes_an_identifier(name: str) -> None:
    found = identifier(name, "tensor")
    assert found.isascii() and found.isidentifier() and "__" not in found and found[0].isalpha()


@given(st.lists(st.text(max_size=3)))
def test_identifiers_are_distinct(names: list[str]) -> None:
    found = distinct_identifiers(names, "tensor")
    assert len(found) == len(names) == len(set(found))


def test_keywords_and_clashes() -> None:
    assert identifier("int", "tensor") == "int_"
    assert distinct_identifiers(["x.1", "x:1", "x_1_2"], "tensor") == ["x_1", "x_1_3", "x_1_2"]
