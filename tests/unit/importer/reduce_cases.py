"""Reductions: axes as an attribute, as an input, absent; with and without the reduced dimensions."""

from __future__ import annotations

from tests.unit.importer.cases import Case, ints, node

NAMES = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSumExp", "SumSquare")
SMALL = {"x": (2, 3, 4, 2)}
CASES = [
    *(
        Case(f"reduce-{n}-attribute".lower(), node(f"Reduce{n}", "x", axes=[-1, 1]), (7, 11), SMALL)
        for n in NAMES
    ),
    *(Case(f"reduce-{n}-all".lower(), node(f"Reduce{n}", "x", keepdims=0), (7, 18), SMALL) for n in NAMES),
    *(
        Case(
            f"reduce-{n}-input".lower(),
            node(f"Reduce{n}", "x", "a", keepdims=0),
            (18, 20),
            SMALL,
            {"a": ints(-2, 0)},
        )
        for n in NAMES
    ),
    Case("reduce-sum-13", node("ReduceSum", "x", "a"), (13, 21), SMALL, {"a": ints(2)}),
    *(
        Case(
            f"reduce-{n}-noop".lower(),
            node(f"Reduce{n}", "x", "a", noop_with_empty_axes=1),
            (18,),
            SMALL,
            {"a": ints()},
        )
        for n in ("Sum", "Mean", "Max")
    ),
    *(
        Case(f"reduce-mean-pixels-{k}", node("ReduceMean", "x", axes=[2, 3], keepdims=k), (11, 13))
        for k in (0, 1)
    ),
]
