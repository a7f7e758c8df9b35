"""Time of one int8 program for all batches up to a bound, beside a program for each very batch, in turns."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

import numpy as np

from qglow.core.types import Array
from qglow.report.bench import Contender, bench
from qglow.runtime.executable import Executable
from scripts.benchmarks.frame import Benchmark, Outcome, add_alternations_option, with_progress
from scripts.benchmarks.models.evaluated import TIMING_SAMPLES, EvaluatedModel, chosen_models
from scripts.benchmarks.models.labelled import MODELS
from scripts.benchmarks.tables import conditions, markdown_table

SHOWN = ("mlperftiny_resnet8", "cifar10_resnet20")
BATCHES = (1, 2, 4, 8, 16)
Times = Mapping[int, tuple[float, float]]
"""Median milliseconds of the batch's own program and of the one for all."""


def measure(model: EvaluatedModel, bound: int, threads: int, alternations: int) -> Times:
    """Time all programs, those of one batch in turns. Raises ValueError where bits differ."""
    loaded = model.load()
    quantized = loaded.quantize(model.profile(loaded, TIMING_SAMPLES), model.recipe)
    ((name, shape),) = loaded.dimensions.items()
    assert shape is not None, "the model takes an image"
    general = quantized.compile(bounds={str(shape[0]): bound}, threads=threads)
    ((_, *image),) = (kind.shape for kind in quantized.inputs.values())
    own = quantized.compile(threads=threads)
    times: dict[int, tuple[float, float]] = {}
    for batch in (batch for batch in BATCHES if batch <= bound):
        drawn: Array = np.random.default_rng(batch).normal(size=(batch, *image)).astype(np.float32)
        given = {name: drawn}
        if any(own(given)[key].tobytes() != array.tobytes() for key, array in general(given).items()):
            raise ValueError(f"{model.name}, batch {batch}: the program for all batches has other bits")
        contenders = {"own": _calling(own, given), "general": _calling(general, given)}
        found = bench(contenders, alternations).latencies
        times[batch] = found["own"].median_ms, found["general"].median_ms
    return times


def _calling(program: Executable, given: Mapping[str, Array]) -> Contender:
    def call() -> None:
        program(given)

    return call


def to_markdown(rows: Mapping[str, Times], bound: int, threads: int) -> str:
    """The table of the documentation."""
    batches: Sequence[int] = [batch for batch in BATCHES if batch <= bound]
    titles = ["model", *(f"batch {batch}: own program, ms / one for all" for batch in batches)]
    body = [
        (name, *(f"{times[batch][0]:.3f} / {times[batch][1] / times[batch][0]:.2f}" for batch in batches))
        for name, times in rows.items()
    ]
    return (
        f"{markdown_table(titles, body)}\n\nint8, bound {bound}, threads {threads}, medians of calls from "
        f"Python; the second number is the quotient of both. {conditions()}"
    )


def _measure_all(options: argparse.Namespace) -> Outcome:
    models = with_progress(chosen_models(options.models, MODELS))
    rows = {
        model.name: measure(model, options.bound, options.threads, options.alternations) for model in models
    }
    return Outcome(to_markdown(rows, options.bound, options.threads))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bound", type=int, default=16, metavar="N", help="largest batch (16)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="(1)")
    add_alternations_option(parser, 20)


BENCHMARK = Benchmark(__doc__, _measure_all, "batches", SHOWN, _add_options)
