"""Time of profiling a sample beside plain inference by onnxruntime in float32.

    python scripts/measure_profiling.py [--models NAME ...] [--alternations N] [--update-readme]

One thread, batch 1, a real sample in memory: the compiled program that counts what every value looks like
takes turns with the one that does not, and with onnxruntime. Compare ratios of one run only, on a machine
that does nothing else. Exits with 1 where profiling takes more than `MOST` times as long as inference by
onnxruntime, in the geometric mean.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from evaluated_models import EvaluatedModel, chosen_models
from readme_tables import conditions, markdown_table, update_readme

from qglow.core.errors import QglowError
from qglow.importer import import_model
from qglow.passes import canonicalize
from qglow.report.bench import bench
from qglow.report.contenders import of_executable, of_onnxruntime
from qglow.toolchain import CompileOptions, compile_graph
from qglow.toolchain.engine import CompiledEngine

PROFILED, PLAIN, ORT = "qglow profiling", "qglow float32", "ORT float32"
MOST = 2.0


def measure(model: EvaluatedModel, alternations: int) -> dict[str, float]:
    """Median milliseconds a sample, by program."""
    sample = next(model.calibration.read(model, model.load(), 1))
    inputs = {name: np.ascontiguousarray(array[None]) for name, array in sample.inputs.items()}
    graph = canonicalize(import_model(model.path).graph)
    options = CompileOptions(threads=1)
    engine = CompiledEngine(lambda batch: graph.copy(), options)
    contenders = {
        PROFILED: lambda: engine.run(inputs),
        PLAIN: of_executable(compile_graph(graph, options), inputs),
        ORT: of_onnxruntime(model.path, inputs),
    }
    result = bench(contenders, alternations)
    return {name: latency.median_ms for name, latency in result.latencies.items()}


def mean_ratio(rows: Mapping[str, Mapping[str, float]]) -> float:
    """Geometric mean over the models of profiling relative to onnxruntime."""
    logs = [math.log(times[PROFILED] / times[ORT]) for times in rows.values()]
    return math.exp(sum(logs) / len(logs))


def to_markdown(rows: Mapping[str, Mapping[str, float]]) -> str:
    """The table of the README."""
    titles = ("model", PROFILED, PLAIN, ORT, f"{PROFILED} / {ORT}")
    body = [
        (
            name,
            *(f"{times[column]:.3f}" for column in (PROFILED, PLAIN, ORT)),
            f"{times[PROFILED] / times[ORT]:.2f}",
        )
        for name, times in rows.items()
    ]
    mean = f"Milliseconds a sample, medians; geometric mean of the ratios {mean_ratio(rows):.2f}."
    return f"{markdown_table(titles, body)}\n\n{mean} {conditions()}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 where profiling takes too long."""
    options = _parse(arguments)
    try:
        rows = {}
        for model in chosen_models(options.models):
            print(f"{model.name} ...", file=sys.stderr, flush=True)
            rows[model.name] = measure(model, options.alternations)
        table = to_markdown(rows)
        print(table)
        if options.update_readme:
            update_readme("profiling", table)
    except QglowError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if mean_ratio(rows) <= MOST:
        return 0
    print(f"profiling takes more than {MOST:g} times as long as {ORT}", file=sys.stderr)
    return 1


def _parse(arguments: Sequence[str] | None) -> Any:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--models", nargs="+", default=(), metavar="NAME", help="only these")
    parser.add_argument("--alternations", type=int, default=50, metavar="N", help="turns a program takes")
    parser.add_argument("--update-readme", action="store_true", help="put the table into README.md")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
