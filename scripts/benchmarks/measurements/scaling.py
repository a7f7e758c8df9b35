"""How the latency of int8 programs changes with threads and with the batch.

Programs for batches of 1, 4 and 8, on one thread and on N, take turns in one process. Compare ratios of
one run only, on a machine that does nothing else. Returns 1 where a sample of a batch takes more than
`LINEAR` times as long as one alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from qglow.report.bench import Contender, bench
from qglow.report.contenders import of_executable, random_inputs
from qglow.runtime.cores import choose_threads
from scripts.benchmarks.frame import Benchmark, Outcome, add_alternations_option, with_progress
from scripts.benchmarks.models.evaluated import TIMING_SAMPLES, EvaluatedModel, chosen_models
from scripts.benchmarks.models.labelled import MODELS
from scripts.benchmarks.tables import conditions, markdown_table

BATCHES = (1, 4, 8)
LINEAR = 1.1
"""Room for noise and for caches that a batch does not fit into."""
SHOWN = ("squeezenet1.1", "mobilenetv2_tin202", "resnet50v2s3_tin202", "cifar10_resnet20", "mlkws_ds_cnn_l")

Times = Mapping[tuple[int, int], float]
"""Median milliseconds a sample, by batch and threads."""


def measure(model: EvaluatedModel, threads: int, alternations: int) -> Times:
    """Time every program of one model in turns."""
    loaded = model.load()
    profile = model.profile(loaded, TIMING_SAMPLES)
    contenders: dict[str, Contender] = {}
    keys = {}
    for batch in BATCHES:
        quantized = loaded.with_batch(batch).quantize(profile, model.recipe)
        inputs = random_inputs(quantized.inputs)
        for count in sorted({1, threads}):
            name = f"{batch} on {count}"
            keys[name] = batch, count
            contenders[name] = of_executable(quantized.compile(threads=count), inputs)
    result = bench(contenders, alternations)
    return {key: result.latencies[name].median_ms / key[0] for name, key in keys.items()}


def to_markdown(rows: Mapping[str, Times], threads: int) -> str:
    """The table of the documentation."""
    titles = ["model", "batch 1, 1 thread, ms", f"1 thread / {threads} threads"]
    for batch in BATCHES[1:]:
        titles += [f"batch {batch}: a sample / alone", f"batch {batch}: 1 thread / {threads} threads"]
    body = []
    for name, times in rows.items():
        alone = times[1, 1]
        cells = [f"{alone:.3f}", f"{alone / times[1, threads]:.2f}"]
        for batch in BATCHES[1:]:
            cells += [f"{times[batch, 1] / alone:.2f}", f"{times[batch, 1] / times[batch, threads]:.2f}"]
        body.append((name, *cells))
    return f"{markdown_table(titles, body)}\n\nint8, medians. {conditions()}"


def _measure_all(options: argparse.Namespace) -> Outcome:
    threads = choose_threads(options.threads)
    models = with_progress(chosen_models(options.models, MODELS))
    rows = {model.name: measure(model, threads, options.alternations) for model in models}
    costly = [
        f"{name}: a batch costs more than its samples one by one"
        for name, times in rows.items()
        if max(times[batch, 1] for batch in BATCHES) > LINEAR * times[1, 1]
    ]
    return Outcome(to_markdown(rows, threads), failures=costly)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=int, metavar="N", help="default: the physical cores available")
    add_alternations_option(parser, 50)


BENCHMARK = Benchmark(__doc__, _measure_all, "scaling", SHOWN, _add_options)
