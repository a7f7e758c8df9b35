"""Attention with heads apart and side by side, shared keys and masks."""

from __future__ import annotations

import numpy as np

from tests.unit.importer.cases import Case, floats, node

HEADS = {"q": (2, 4, 3, 8), "k": (2, 4, 5, 8), "v": (2, 4, 5, 6)}
SHARED = {"q": (2, 4, 3, 8), "k": (2, 2, 5, 8), "v": (2, 2, 5, 6)}
FLAT = {"q": (2, 3, 32), "k": (2, 5, 16), "v": (2, 5, 12)}
MASK = np.arange(15).reshape(3, 5) % 4 != 1
CASES = [
    Case("attention", node("Attention", "q", "k", "v"), (23, 24), HEADS),
    Case("attention-scale", node("Attention", "q", "k", "v", scale=0.3, softcap=2.0), (23,), HEADS),
    Case("attention-shared", node("Attention", "q", "k", "v", is_causal=1), (23,), SHARED),
    Case("attention-flat", node("Attention", "q", "k", "v", q_num_heads=4, kv_num_heads=2), (23,), FLAT),
    Case("attention-bool", node("Attention", "q", "k", "v", "m"), (23,), HEADS, {"m": MASK}),
    Case("attention-float", node("Attention", "q", "k", "v", "m"), (23,), {**HEADS, "m": (2, 1, 3, 5)}),
    Case(
        "attention-causal",
        node("Attention", "q", "k", "v", "m", is_causal=1),
        (23,),
        HEADS,
        {"m": floats(3, 5)},
    ),
]
