"""Lists the ONNX operators that can be imported.

python -m scripts.benchmarks operators [--update-docs]
"""

from __future__ import annotations

import argparse

from qglow.importer.rules import OLDEST_OPSET, contributed_operators, supported_operators
from scripts.benchmarks.frame import Benchmark, Outcome


def _listed(options: argparse.Namespace) -> Outcome:
    names, others = supported_operators(), contributed_operators()
    text = f"{len(names)} operators of opset {OLDEST_OPSET} and later: {', '.join(names)}."
    return Outcome(f"{text} {len(others)} of com.microsoft, onnxruntime's own: {', '.join(others)}.")


BENCHMARK = Benchmark(__doc__, _listed, "operators", models=None)
