"""Places and first elements: `y` is float, so indices are cast or chosen with."""

from __future__ import annotations

from tests.unit.importer.cases import Case, ints, node

CASES = [
    Case("arg-max", node("ArgMax", "x"), (7, 11, 13, 21)),
    Case("arg-max-axis", node("ArgMax", "x", axis=-1, keepdims=0), (7, 12)),
    Case("arg-min-last", node("ArgMin", "x", axis=2, select_last_index=1), (12, 13)),
    Case("top-k-7", node("TopK", "x", k=3, axis=1), (7, 9)),
    Case("top-k-10", node("TopK", "x", "k"), (10, 11, 21), constants={"k": ints(4)}),
    Case(
        "top-k-smallest",
        node("TopK", "x", "k", axis=1, largest=0, sorted=1),
        (11, 21),
        constants={"k": ints(6)},
    ),
]
