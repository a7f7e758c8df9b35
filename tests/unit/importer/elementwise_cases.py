"""Arithmetic, functions of one variable, and choices, in the forms that the operator sets gave them."""

from __future__ import annotations

import numpy as np

from tests.unit.importer.cases import IMAGE, Case, floats, ints, node

PAIR = {"x": (2, 1, 4), "z": (3, 1)}
THREE = {"x": (2, 3, 4), "z": (3, 1), "w": (4,)}
POSITIVE = {"c": np.abs(floats(6, 1, 1)) + np.float32(0.5)}
FUNCTIONS = [
    *(Case(op.lower(), node(op, "x"), (7, 13)) for op in ("Abs", "Neg", "Exp", "Softplus", "Elu")),
    *(Case(op.lower(), node(op, "x"), (9, 13)) for op in ("Erf", "Reciprocal", "LeakyRelu", "HardSigmoid")),
    *(Case(op.lower(), node(op, "x"), (11, 13, 22)) for op in ("Ceil", "Floor", "Round", "Sign")),
    Case("elu-alpha", node("Elu", "x", alpha=2.0), (7, 21)),
    Case("leakyrelu-alpha", node("LeakyRelu", "x", alpha=0.3), (7, 16)),
    Case("hardsigmoid-line", node("HardSigmoid", "x", alpha=0.5, beta=0.6), (7, 21)),
    Case("hardswish", node("HardSwish", "x"), (14, 21)),
    Case("swish", node("Swish", "x", alpha=1.5), (24,)),
    Case("gelu", node("Gelu", "x"), (20,)),
    Case("gelu-tanh", node("Gelu", "x", approximate="tanh"), (20,)),
    Case("mish", node("Mish", "x"), (18, 22)),
    *(
        Case(f"logsoftmax-{axis}", node("LogSoftmax", "x", axis=axis), (11, 13), {"x": (2, 3, 5)})
        for axis in (0, 1, 2)
    ),
]
POWERS = [
    *(
        Case(f"pow-{exponent}", node("Pow", "x", "c"), (7, 12, 15), constants={"c": np.float32(exponent)})
        for exponent in (1.0, 2.0, 3.0, 4.0)
    ),
    Case("pow-vector", node("Pow", "x", "c"), (7, 13), constants={"c": np.float32([2, 3, 1, 0, 4, 5, 2, 3])}),
    Case("pow-base", node("Pow", "c", "x"), (7, 13), constants=POSITIVE),
    Case("pow-integer-exponent", node("Pow", "x", "c"), (12, 15), constants={"c": ints(3)}),
    Case("pow-larger-exponent", node("Pow", "x", "c"), (13,), {"x": (3,)}, {"c": np.float32([[2.0]])}),
]
CHOICES = [
    Case("div", node("Div", "x", "c"), (7, 13, 14), constants=POSITIVE),
    Case("div-by-computed", node("Div", "c", "x"), (13,), constants={"c": floats(6, 1, 1)}),
    *(
        Case(f"{op}-{len(inputs)}".lower(), node(op, *inputs), (8, 13), inputs)
        for op in ("Max", "Min", "Sum", "Mean")
        for inputs in (THREE, PAIR, {"x": (3,)})
    ),
    Case("prelu-channel", node("PRelu", "x", "c"), (7, 9, 16), constants={"c": floats(6, 1, 1)}),
    Case("prelu-one", node("PRelu", "x", "c"), (9, 16), constants={"c": floats(1)}),
    Case("prelu-computed", node("PRelu", "x", "z"), (9, 16), {"x": IMAGE, "z": (9, 8)}),
    Case(
        "where",
        node("Where", "c", "x", "z"),
        (9, 16),
        PAIR,
        {"c": np.array([[True], [False], [True]])},
    ),
]
CASTS = [
    Case("castlike-same", node("CastLike", "x", "c"), (15, 19), constants={"c": np.zeros(2, np.float32)}),
    Case("castlike-constant", node("CastLike", "c", "x"), (15, 21), constants={"c": ints(3, -1)}),
]
CASES = [*FUNCTIONS, *POWERS, *CHOICES, *CASTS]
