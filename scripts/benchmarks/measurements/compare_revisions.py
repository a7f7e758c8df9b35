"""What a change of qglow changes: int8 models of two checkouts, their bits and their speed.

Each model is quantized, exported and compiled by the qglow of --base and by that of this checkout, each in a
process of its own, from the same calibration samples. Then both programs take turns: bursts of calls, each
after an untimed one, on the same threads. The ratio is that of the medians, below 1 where this checkout is
faster; the last line is the geometric mean. Compare times on a machine that does nothing else; bits do not
depend on that.

Exits with 1, and a line for each, where the exported QDQ model or an output of the int8 program is not the
same byte for byte, or only one of both can build a model.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from qglow.core.errors import ModelError, UnsupportedError, UsageError
from qglow.core.types import Array
from qglow.profiling.samples import Sample
from qglow.report.bench import MIN_ALTERNATIONS, TURN_NS, BenchResult, result_of_turns
from scripts.benchmarks.frame import (
    Benchmark,
    Outcome,
    add_alternations_option,
    add_json_option,
    announce,
    json_document,
)
from scripts.benchmarks.models.evaluated import REPOSITORY, TIMING_SAMPLES, ZOO, EvaluatedModel, check_names
from scripts.benchmarks.models.opened import all_names, file_in_zoo, opened_models
from scripts.benchmarks.tables import conditions, markdown_table
from scripts.benchmarks.workers.process import Worker

BASE, HERE = "base", "here"
EVALUATED_SAMPLES = 4
WARMUP = 5
MOST_REPEATS = 1000
Digests = Mapping[str, str]


@dataclass(frozen=True)
class Row:
    """One model in both checkouts.

    different: files and outputs that are not the same bytes; None where no more than one could be built.
    times: of both, None likewise. errors: why a checkout cannot build the model, by its name.
    """

    model: str
    different: tuple[str, ...] | None
    times: BenchResult | None
    errors: Mapping[str, str]

    @property
    def ratio(self) -> float | None:
        """Time in this checkout relative to the base."""
        return None if self.times is None else self.times.ratio(HERE, BASE).ratio

    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        if self.times is None or self.different is None:
            return (self.model, f"fails in {', '.join(self.errors)}", "-", "-", "-", "-")
        ratio, found = self.times.ratio(HERE, BASE), self.times.latencies
        bits = "same" if not self.different else f"differ: {', '.join(self.different)}"
        times = (f"{found[name].median_ms:.4g}" for name in (BASE, HERE))
        return (self.model, bits, *times, f"{ratio.ratio:.3f}", f"{ratio.low:.3f} to {ratio.high:.3f}")

    def failures(self) -> Iterator[str]:
        """What this checkout does otherwise than the base."""
        for what in self.different or ():
            yield f"{self.model}: {what} is not the same"
        if len(self.errors) == 1:
            [(name, error)] = self.errors.items()
            yield f"{self.model}: fails in {name} only: {error}"


def measure(model: EvaluatedModel, workers: Mapping[str, Worker], options: argparse.Namespace) -> Row:
    """Build the model in both checkouts, compare what comes out, and time both programs in turns."""
    with TemporaryDirectory(prefix="qglow-revisions-") as made:
        folder = Path(made)
        calibration, evaluation = _write_samples(model, folder)
        files: dict[str, Digests] = {}
        outputs: dict[str, Digests] = {}
        errors = {}
        for name, worker in workers.items():
            asked = {"isa": options.isa, "threads": options.threads, "folder": folder / name}
            try:
                files[name] = worker.ask(
                    "build", name=model.name, model=model.path, data=calibration, **asked
                )
                outputs[name] = worker.ask("outputs", data=evaluation)
            except ModelError as error:
                errors[name] = str(error)
        if errors:
            return Row(model.name, None, None, errors)
        different = [what for each in (files, outputs) for what in _different(each[BASE], each[HERE])]
        return Row(model.name, tuple(different), _take_turns(workers, options.alternations), {})


def _different(base: Digests, here: Digests) -> Iterator[str]:
    """Names whose digests are not the same, or that only one of both has."""
    for name in dict.fromkeys([*base, *here]):
        if base.get(name) != here.get(name):
            yield name


def _write_samples(model: EvaluatedModel, folder: Path) -> tuple[Path, Path]:
    """Calibration and evaluation samples, ready for the model, as files that every revision can read."""
    loaded = model.load()
    paths = folder / "calibration.npz", folder / "evaluation.npz"
    size = loaded.batch_size
    counts = (size * math.ceil(least / size) for least in (TIMING_SAMPLES, EVALUATED_SAMPLES))
    for path, split, count in zip(paths, (model.calibration, model.evaluation), counts, strict=True):
        samples = [*split.read(model, loaded, count)]
        whole = samples[: len(samples) // size * size]
        np.savez(path, **_stacked(whole))  # type: ignore[arg-type]
    return paths


def _stacked(samples: Sequence[Sample]) -> dict[str, Array]:
    return {name: np.stack([sample.inputs[name] for sample in samples]) for name in samples[0].inputs}


def _take_turns(workers: Mapping[str, Worker], alternations: int) -> BenchResult:
    """Bursts in turns, whose order is the other way round each time."""
    warm = [float(worker.ask("turn", repeats=WARMUP)) for worker in workers.values()]
    repeats = max(1, min(MOST_REPEATS, math.ceil(TURN_NS / 1e6 / min(warm))))
    turns = np.zeros((len(workers), alternations))
    rows = list(enumerate(workers.values()))
    for column in range(alternations):
        for row, worker in rows if column % 2 == 0 else reversed(rows):
            turns[row, column] = worker.ask("turn", repeats=repeats)
    return result_of_turns(dict.fromkeys(workers, repeats), turns)


def to_markdown(rows: Sequence[Row]) -> str:
    """A table, and the geometric mean of the ratios."""
    titles = ("model", "bits", f"{BASE}, ms", f"{HERE}, ms", f"{HERE} / {BASE}", "p10 to p90")
    table = markdown_table(titles, [row.cells() for row in rows])
    ratios = [row.ratio for row in rows if row.ratio is not None]
    if not ratios:
        return f"{table}\n\n{conditions()}"
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return f"{table}\n\nGeometric mean of the ratios over {len(ratios)} models: {mean:.3f}. {conditions()}"


def to_json(rows: Sequence[Row]) -> str:
    """The same as data."""
    models = [
        {
            "model": row.model,
            "different": None if row.different is None else list(row.different),
            "ratio": row.ratio,
            "errors": dict(row.errors),
        }
        for row in rows
    ]
    return json_document(models=models)


def _measure_all(options: argparse.Namespace) -> Outcome:
    base = options.base.resolve()
    if not (base / "qglow" / "__init__.py").exists():
        raise UsageError(f"{base} is no checkout of qglow; --base names one")
    if options.alternations < MIN_ALTERNATIONS:
        raise UsageError(
            f"--alternations {options.alternations} is too few for a ratio; {MIN_ALTERNATIONS} do"
        )
    known = all_names()
    check_names(options.models, known)
    rows: list[Row] = []
    with TemporaryDirectory(prefix="qglow-caches-") as caches, ExitStack() as stack:
        workers = {
            name: stack.enter_context(_worker(checkout, Path(caches) / name))
            for name, checkout in ((BASE, base), (HERE, REPOSITORY))
        }
        for name in options.models or known:
            announce(name)
            rows.append(_row(name, workers, options))
            print("  " + ", ".join(rows[-1].cells()[1:]), file=sys.stderr)
            for where, error in rows[-1].errors.items():
                print(f"  fails in {where}: {error}", file=sys.stderr)
    return Outcome(
        to_markdown(rows), json=to_json(rows), failures=[f for row in rows for f in row.failures()]
    )


def _row(name: str, workers: Mapping[str, Worker], options: argparse.Namespace) -> Row:
    """The row of a model, also where this checkout cannot even read it."""
    try:
        [row] = [measure(model, workers, options) for model in opened_models([name], all_names())]
        return row
    except UnsupportedError as error:
        errors = {HERE: str(error).partition("\n")[0]}
    try:
        workers[BASE].ask("load", model=ZOO / file_in_zoo(name))
    except ModelError as error:
        errors[BASE] = str(error)
    return Row(name, None, None, errors)


def _worker(checkout: Path, cache: Path) -> Worker:
    """A process for a checkout, with a code cache of its own: no revision runs code of the other."""
    environment = {"PYTHONPATH": str(checkout), "QGLOW_CACHE": str(cache)}
    return Worker("scripts.benchmarks.workers.revision", [str(checkout)], environment)


def _add_options(parser: argparse.ArgumentParser) -> None:
    what = "the other checkout of qglow"
    parser.add_argument("--base", type=Path, required=True, metavar="FOLDER", help=what)
    parser.add_argument("--isa", metavar="NAME", help="kernels of both; default each one's best")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="of both programs (1)")
    add_alternations_option(parser, 50)
    add_json_option(parser)


BENCHMARK = Benchmark(__doc__, _measure_all, add_options=_add_options)
