"""Normalizations by the input's own statistics."""

from __future__ import annotations

import numpy as np

from tests.unit.importer.cases import Case, floats, node

VECTORS = {"s": floats(6), "h": floats(6)}
STATISTICS = VECTORS | {"m": floats(6), "v": np.abs(floats(6))}
OWN = node("BatchNormalization", "x", "s", "h", "m", "v", epsilon=1e-3, training_mode=1)
OWN.output.extend(["running_mean", "running_variance"])
CASES = [
    Case(
        "layer",
        node("LayerNormalization", "x", "s", "h", axis=2, epsilon=1e-3),
        (17, 21),
        constants={"s": floats(9, 8), "h": floats(9, 8)},
    ),
    Case("layer-last", node("LayerNormalization", "x", "s"), (17,), constants={"s": floats(8)}),
    Case("instance", node("InstanceNormalization", "x", "s", "h"), (7, 22), constants=VECTORS),
    Case("instance-line", node("InstanceNormalization", "x", "s", "h"), (7, 22), {"x": (2, 6, 9)}, VECTORS),
    Case("batch", OWN, (14, 15), constants=STATISTICS),
    Case("batch-line", OWN, (15,), {"x": (3, 6, 9)}, STATISTICS),
    Case("batch-rows", OWN, (15,), {"x": (7, 6)}, STATISTICS),
    Case("batch-image", OWN, (15,), {"x": (1, 6, 4, 5)}, STATISTICS),
    Case("lrn", node("LRN", "x", size=3, alpha=0.1, beta=0.5, bias=2.0), (7, 13)),
    Case("lrn-defaults", node("LRN", "x", size=5), (7, 13)),
    Case("lrn-wide", node("LRN", "x", size=19, alpha=3.0, bias=0.5), (7, 13)),
]
