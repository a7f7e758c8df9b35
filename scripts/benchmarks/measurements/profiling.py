"""Time of profiling a sample beside plain inference by onnxruntime in float32.

One thread, batch 1, a real sample in memory: the compiled program that counts what every value looks like
takes turns with the one that does not, and with onnxruntime. Compare ratios of one run only, on a machine
that does nothing else. Exits with 1 where profiling takes more than `MOST` times as long as inference by
onnxruntime, in the geometric mean.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping

import numpy as np

from qglow.importer import import_model
from qglow.passes import canonicalize
from qglow.report.bench import bench
from qglow.report.contenders import of_executable, of_onnxruntime
from qglow.toolchain import CompileOptions, compile_graph
from qglow.toolchain.engine import CompiledEngine
from scripts.benchmarks.frame import Benchmark, Outcome, add_alternations_option, with_progress
from scripts.benchmarks.models.evaluated import EvaluatedModel, chosen_models
from scripts.benchmarks.models.labelled import MODELS
from scripts.benchmarks.tables import conditions, markdown_table

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
    """The table of the documentation."""
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


def _measure_all(options: argparse.Namespace) -> Outcome:
    models = with_progress(chosen_models(options.models, MODELS))
    rows = {model.name: measure(model, options.alternations) for model in models}
    failures = (
        [] if mean_ratio(rows) <= MOST else [f"profiling takes more than {MOST:g} times as long as {ORT}"]
    )
    return Outcome(to_markdown(rows), failures=failures)


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_alternations_option(parser, 50)


BENCHMARK = Benchmark(__doc__, _measure_all, "profiling", add_options=_add_options)
