"""Processor seconds of profiling, quantizing and compiling a network of a kind and size, as JSON.

    python -m scripts.benchmarks.workers.growth KIND NODES FOLDER

FOLDER is empty. What the processes take that qglow starts counts too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import TypeVar

import onnx

from qglow import load_model
from scripts.benchmarks.models.growing import growing_network, growing_samples

SAMPLES = 4
T = TypeVar("T")


def measured(kind: str, nodes: int, folder: Path) -> dict[str, float]:
    """Seconds by step, reading the model first of all."""
    network, path = growing_network(kind, nodes), folder / "model.onnx"
    onnx.save(network, path)
    data = growing_samples(network, SAMPLES)
    seconds: dict[str, float] = {}

    def timed(step: str, work: Callable[[], T]) -> T:
        before = _seconds()
        result = work()
        seconds[step] = _seconds() - before
        return result

    model = timed("load", lambda: load_model(path))
    profile = timed("profile", lambda: model.profile(data))
    quantized = timed("quantize", lambda: model.quantize(profile))
    timed("compile", quantized.compile)
    return seconds


def _seconds() -> float:
    both = getrusage(RUSAGE_SELF), getrusage(RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))))
