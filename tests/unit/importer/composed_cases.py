"""Operators that become the arithmetic that defines them, and such as choose by place."""

from __future__ import annotations

import numpy as np

from tests.unit.importer.cases import Case, floats, ints, node

LINES = {"x": (2, 6, 9)}
WHOLE = {"s": floats(6), "h": floats(6)}
BOUNDED = {"Acos": (0.0, 1.0), "Asin": (0.0, 1.0), "Atanh": (0.0, 0.9), "Acosh": (3.0, 1.9)}
"""Functions that are defined on a part of the numbers: its middle, and how far it may go to either side."""
CASES = [
    *(Case(f"det-{rows}", node("Det", "x"), (11, 22), {"x": (2, 3, rows, rows)}) for rows in (1, 2, 3, 4)),
    Case("optional", node("OptionalGetElement", "x"), (18,)),
    Case("det-one", node("Det", "x"), (11,), {"x": (3, 3)}),
    Case("celu", node("Celu", "x"), (12, 21)),
    Case("celu-alpha", node("Celu", "x", alpha=2.5), (12,)),
    Case("selu", node("Selu", "x"), (7, 22)),
    Case("selu-numbers", node("Selu", "x", alpha=2.0, gamma=3.0), (7,)),
    Case("thresholded", node("ThresholdedRelu", "x", alpha=0.3), (10, 22)),
    Case("shrink", node("Shrink", "x", lambd=0.4, bias=0.2), (9, 21)),
    Case("cum-sum", node("CumSum", "x", "a"), (11, 14), constants={"a": np.int64(-1)}),
    Case("cum-sum-rows", node("CumSum", "x", "a", exclusive=1), (14,), constants={"a": np.int64(1)}),
    Case("cum-sum-back", node("CumSum", "x", "a", reverse=1), (14,), constants={"a": np.int64(3)}),
    Case(
        "cum-sum-line",
        node("CumSum", "x", "a", reverse=1, exclusive=1),
        (14,),
        {"x": (7,)},
        {"a": ints(0)},
    ),
    Case("lp", node("LpNormalization", "x"), (7, 22)),
    Case("lp-1", node("LpNormalization", "x", p=1, axis=1), (7, 22)),
    Case("rms", node("RMSNormalization", "x", "s", epsilon=1e-3), (23,), LINES, {"s": floats(9)}),
    Case("rms-two", node("RMSNormalization", "x", "s", axis=1), (23,), LINES, {"s": floats(6, 9)}),
    Case("group", node("GroupNormalization", "x", "s", "h", num_groups=3), (21,), constants=WHOLE),
    Case("group-line", node("GroupNormalization", "x", "s", "h", num_groups=2), (21,), LINES, WHOLE),
    Case(
        "group-old",
        node("GroupNormalization", "x", "s", "h", num_groups=3),
        (18, 20),
        constants={"s": floats(3), "h": floats(3)},
    ),
    Case("mean-variance", node("MeanVarianceNormalization", "x"), (9, 13)),
    Case("mean-variance-axes", node("MeanVarianceNormalization", "x", axes=[1, -1]), (13,)),
    Case("hardmax", node("Hardmax", "x"), (13, 21)),
    Case("hardmax-axis", node("Hardmax", "x", axis=1), (13,)),
    Case("hardmax-11", node("Hardmax", "x", axis=3), (11,)),
    *(
        Case(
            f"einsum-{text}",
            node("Einsum", "x", "w", equation=text),
            (12,),
            {"x": left},
            {"w": floats(*right)},
        )
        for text, left, right in (
            ("ij,jk->ik", (3, 4), (4, 5)),
            ("bij,bjk", (2, 3, 4), (2, 4, 5)),
            ("bqhd,bkhd->bhqk", (2, 3, 4, 5), (2, 6, 4, 5)),
            ("bhwc,hkc->bhwk", (2, 3, 4, 5), (3, 6, 5)),
            ("i,j->ji", (3,), (4,)),
            ("...ij,...jk->...ik", (2, 2, 3, 4), (2, 2, 4, 5)),
            ("ijk,k->j", (2, 3, 4), (4,)),
        )
    ),
    Case("einsum-one", node("Einsum", "x", equation="a b c -> c a"), (12,), {"x": (2, 3, 4)}),
    Case("dft", node("DFT", "x", "", "a"), (20,), {"x": (2, 9, 3, 1)}, {"a": np.int64(1)}),
    Case("dft-17", node("DFT", "x", axis=1, onesided=1), (17,), {"x": (2, 10, 1)}),
    Case("dft-inverse", node("DFT", "x", axis=2, inverse=1), (17,), {"x": (2, 3, 8, 2)}),
    Case(
        "dft-to-real",
        node("DFT", "x", "", "a", inverse=1, onesided=1),
        (20,),
        {"x": (2, 5, 3, 2)},
        {"a": np.int64(1)},
    ),
    Case("einsum-diagonal", node("Einsum", "x", equation="...ii->...i"), (12,), {"x": (2, 3, 4, 4)}),
    Case(
        "einsum-trace", node("Einsum", "x", "w", equation="iji,jk->ik"), (12,), {"x": (4, 3, 4), "w": (3, 2)}
    ),
    Case("dft-short", node("DFT", "x", "n", axis=1), (17,), {"x": (2, 9, 2)}, {"n": np.int64(6)}),
    Case("dft-long", node("DFT", "x", "n", axis=1), (17,), {"x": (2, 9, 2)}, {"n": np.int64(16)}),
    Case(
        "stft",
        node("STFT", "x", "s", "w"),
        (17,),
        {"x": (2, 40, 1)},
        {"s": np.int64(5), "w": np.hanning(12).astype(np.float32)},
    ),
    Case(
        "stft-all",
        node("STFT", "x", "s", "", "l", onesided=0),
        (17,),
        {"x": (1, 32, 1)},
        {"s": np.int64(8), "l": np.int64(16)},
    ),
    Case("mod", node("Mod", "x", "m", fmod=1), (10, 13), {"x": (4, 3)}, {"m": floats(4, 3)}),
    *(
        Case(name.lower(), node(name, "x"), (9, 22))
        for name in ("Asinh", "Atan", "Cos", "Cosh", "Sin", "Sinh", "Tan")
    ),
    Case("trilu", node("Trilu", "x"), (14, 21)),
    Case("trilu-lower", node("Trilu", "x", "k", upper=0), (14,), constants={"k": np.int64(-2)}),
]
