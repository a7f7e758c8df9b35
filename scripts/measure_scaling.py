"""How the latency of int8 programs changes with threads and with the batch.

    python scripts/measure_scaling.py [--models NAME ...] [--threads N] [--alternations N] [--update-readme]

Programs for batches of 1, 4 and 8, on one thread and on N, take turns in one process. Compare ratios of
one run only, on a machine that does nothing else. Returns 1 where a sample of a batch takes more than
`LINEAR` times as long as one alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from evaluated_models import EvaluatedModel, chosen_models
from readme_tables import conditions, markdown_table, update_readme

from qglow.core.errors import QglowError
from qglow.report.bench import Contender, bench
from qglow.report.contenders import of_executable, random_inputs
from qglow.runtime.cores import choose_threads

CALIBRATION_SAMPLES = 8
"""Ranges hardly matter for speed, so a few samples do."""
BATCHES = (1, 4, 8)
LINEAR = 1.1
"""Room for noise and for caches that a batch does not fit into."""
SHOWN = ("squeezenet1.1", "mobilenetv2_tin202", "resnet50v2s3_tin202", "cifar10_resnet20", "mlkws_ds_cnn_l")

Times = Mapping[tuple[int, int], float]
"""Median milliseconds a sample, by batch and threads."""


def measure(model: EvaluatedModel, threads: int, alternations: int) -> Times:
    """Time every program of one model in turns."""
    loaded, split = model.load(), model.calibration
    data = model.root / split.data
    profile = loaded.profile(data, select=split.select, samples=CALIBRATION_SAMPLES, recipe=model.recipe)
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
    """The table of the README."""
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 where a batch costs more than linear."""
    options = _parse(arguments)
    try:
        threads = choose_threads(options.threads)
        rows = {}
        for model in chosen_models(options.models):
            print(f"{model.name} ...", file=sys.stderr, flush=True)
            rows[model.name] = measure(model, threads, options.alternations)
        table = to_markdown(rows, threads)
        print(table)
        if options.update_readme:
            update_readme("scaling", table)
    except QglowError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    costly = [
        name for name, times in rows.items() if max(times[b, 1] for b in BATCHES) > LINEAR * times[1, 1]
    ]
    for name in costly:
        print(f"{name}: a batch costs more than its samples one by one", file=sys.stderr)
    return 1 if costly else 0


def _parse(arguments: Sequence[str] | None) -> Any:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--models", nargs="+", default=SHOWN, metavar="NAME", help="only these")
    parser.add_argument("--threads", type=int, metavar="N", help="default: the physical cores available")
    parser.add_argument("--alternations", type=int, default=50, metavar="N", help="turns a program takes")
    parser.add_argument("--update-readme", action="store_true", help="put the table into README.md")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
