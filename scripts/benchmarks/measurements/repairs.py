"""What repair costs: time of quantizing, multiply-adds that leave int8, and time of a call.

Every model of the zoo (QGLOW_ZOO) and of other people's (QGLOW_WILD) that qglow loads is quantized from its
profile by `qglow quantize --no-repair` and by `qglow quantize`, in turns, each in a process of its own that
finds nothing kept: no code, no answers. Shown are the medians of processor time of the whole command, all
threads and processes together, and their ratio; the share of the multiply-adds that are in int8, and how
much of that repair kept; the time of a call after repair over that before it, the median over turns on one
thread; and both verdicts.

A row is printed to standard error when it is known, and kept in the file of --json; with --resume the
measurement goes on there. Exits with 1, and a line for each, where quantizing takes more than 2.5 times as
long with repair (which is to take about twice the plain time), and, for models not broken without repair,
where less than 90 % of the multiply-adds stay in int8 or a call takes more than 1.15 times as long.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from qglow import QuantizedModel, load_quantized, save_profile
from qglow.core.batch import batch_of
from qglow.core.errors import QglowError, UsageError
from qglow.core.files import write_atomically
from qglow.graph.graph import Graph
from qglow.graph.work import node_multiply_adds
from qglow.profiling.samples import batches
from qglow.quantization.report import is_int8
from qglow.report.bench import bench
from qglow.report.contenders import of_executable
from qglow.report.runner import filled
from scripts.benchmarks.frame import (
    Benchmark,
    Outcome,
    add_alternations_option,
    add_json_option,
    announce,
    json_document,
    read_rows,
)
from scripts.benchmarks.models.evaluated import EvaluatedModel
from scripts.benchmarks.models.opened import found_names, opened_models
from scripts.benchmarks.models.wild import WILD
from scripts.benchmarks.tables import conditions, markdown_table, with_other_rows

PLAIN, REPAIRED = "plain", "repaired"
COMMANDS: Mapping[str, Sequence[str]] = {PLAIN: ("--no-repair",), REPAIRED: ()}
LONGEST = 2.5
"""Time of quantizing with repair over that without: repair takes about twice the plain time."""
LEAST_KEPT = 0.9
SLOWEST = 1.15
BROKEN = "broken"
TITLES = (
    "model",
    "plain, s",
    "repaired, s",
    "ratio",
    "int8 multiply-adds, %",
    "kept, %",
    "call, repaired : plain",
    "verdict plain",
    "verdict repaired",
)


@dataclass(frozen=True)
class Row:
    """One model, by the names of COMMANDS: processor time in seconds, share of the multiply-adds in int8 (0
    to 1, None without any), and the verdict's word. call: time of a call, repaired over plain.
    """

    model: str
    seconds: Mapping[str, float]
    int8: Mapping[str, float | None]
    verdicts: Mapping[str, str]
    call: float

    @property
    def ratio(self) -> float:
        """Time of quantizing with repair over that without."""
        return self.seconds[REPAIRED] / self.seconds[PLAIN]

    @property
    def kept(self) -> float | None:
        """Share of the int8 multiply-adds that repair left in int8; None without any."""
        plain, repaired = self.int8[PLAIN], self.int8[REPAIRED]
        return repaired / plain if plain and repaired is not None else None

    @property
    def failures(self) -> list[str]:
        """One line for each limit that does not hold."""
        found = []
        if self.ratio > LONGEST:
            found.append(f"{self.model}: quantizing takes {self.ratio:.2f} times as long with repair")
        if self.verdicts[PLAIN] == BROKEN:
            return found
        if self.kept is not None and self.kept < LEAST_KEPT:
            found.append(f"{self.model}: repair keeps {self.kept:.1%} of the int8 multiply-adds")
        if self.call > SLOWEST:
            found.append(f"{self.model}: a call takes {self.call:.2f} times as long after repair")
        return found

    def cells(self) -> tuple[str, ...]:
        """As in the table."""
        return (
            self.model,
            *(f"{self.seconds[name]:.1f}" for name in COMMANDS),
            f"{self.ratio:.2f}",
            _percent(self.int8[REPAIRED]),
            _percent(self.kept),
            f"{self.call:.2f}",
            *(self.verdicts[name] for name in COMMANDS),
        )


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{100.0 * share:.1f}"


def measure(model: EvaluatedModel, options: argparse.Namespace, folder: Path) -> Row:
    """All figures of one model; `folder` is empty, and left full. Raises QglowError where it is refused."""
    loaded = model.load()
    if loaded.is_quantized:
        raise UsageError("quantized already: it has its own parameters")
    profile = folder / "profile.yaml"
    save_profile(model.profile(loaded, _calibrated(model, options)), profile)
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    _quantize(profile, COMMANDS[PLAIN], folder / PLAIN, folder / "cache")  # which leaves bytecode
    for turn in range(options.repeat):
        for name, flags in COMMANDS.items():
            cache = folder / f"cache-{name}-{turn}"
            seconds[name].append(_quantize(profile, flags, folder / name, cache))
    made = {name: load_quantized(folder / name) for name in COMMANDS}
    return Row(
        model.name,
        {name: statistics.median(taken) for name, taken in seconds.items()},
        {name: int8_share(each.graph) for name, each in made.items()},
        {name: "none" if each.verdict is None else each.verdict.word for name, each in made.items()},
        _time_of_call(model, made, options.alternations),
    )


def _calibrated(model: EvaluatedModel, options: argparse.Namespace) -> int | None:
    """How many samples are profiled; None for all of the few that other people's models have."""
    own = model.calibration.samples
    most: int = options.calibration
    if model.root == WILD:
        return own
    return most if own is None else min(most, own)


def _quantize(profile: Path, flags: Sequence[str], output: Path, cache: Path) -> float:
    """Seconds of processor time of the command. Raises CalledProcessError where it fails."""
    command = [sys.executable, "-m", "qglow.cli.main", "quantize", "--profile", str(profile), *flags]
    # As installed: with bytecode of the package, which an environment may forbid to write.
    bytecode = {"PYTHONPYCACHEPREFIX": str(profile.parent / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}
    environment = {**os.environ, **bytecode, "QGLOW_CACHE": str(cache), "QGLOW_REMEMBER": "0"}
    before = os.times()
    quiet = subprocess.DEVNULL
    subprocess.run([*command, "-o", str(output)], env=environment, check=True, stdout=quiet, stderr=quiet)
    after = os.times()
    user, kernel = after.children_user - before.children_user, after.children_system - before.children_system
    return user + kernel


def int8_share(graph: Graph) -> float | None:
    """Share of the multiply-adds of a graph that are in int8 nodes, 0 to 1; None without any."""
    work = [(node_multiply_adds(node), is_int8(node)) for node in graph.nodes]
    everything = math.fsum(count for count, _ in work)
    return math.fsum(count for count, int8 in work if int8) / everything if everything else None


def _time_of_call(model: EvaluatedModel, made: Mapping[str, QuantizedModel], alternations: int) -> float:
    """Time of a call, repaired over plain, on one thread; the median over turns of processor time."""
    loaded = model.load()
    sample = next(iter(model.calibration.read(model, loaded)))
    [batch] = batches([sample], 1)
    size = batch_of({name: kind.shape for name, kind in loaded.inputs.items()})
    inputs = {
        name: np.ascontiguousarray(array if batch.whole else filled(array, size))
        for name, array in batch.inputs.items()
    }
    contenders = {
        name: of_executable(each.compile(threads=1), inputs, each.graph.tail) for name, each in made.items()
    }
    result = bench(contenders, alternations, clock=time.process_time_ns)
    repaired, plain = (result.turns_ms[list(made).index(name)] for name in (REPAIRED, PLAIN))
    return float(statistics.median(repaired / plain))


def to_markdown(rows: Sequence[Row]) -> str:
    """The table of the documentation."""
    return markdown_table(TITLES, [row.cells() for row in rows])


def summary(rows: Sequence[Row]) -> str:
    """One line: how many models, how many beyond a limit, and the middle of the ratios."""
    if not rows:
        return "No models."
    beyond = sum(bool(row.failures) for row in rows)
    ratio, call = statistics.median(row.ratio for row in rows), statistics.median(row.call for row in rows)
    return (
        f"{len(rows)} models, {beyond} beyond a limit; in median quantizing takes {ratio:.2f} times as long "
        f"with repair, and a call {call:.2f} times as long after it."
    )


def row_of(fields: dict[str, Any]) -> Row:
    """Make a row of what --json wrote of it."""
    return Row(**fields)


def _measure_all(options: argparse.Namespace) -> Outcome:
    """A row for each model that qglow takes; the JSON file has all that are known after each."""
    names = options.models or found_names()
    rows: dict[str, Row] = _known(options)
    refused = []
    for model in opened_models(names, found_names()):
        announce(model.name)
        if model.name in rows:
            continue
        try:
            with tempfile.TemporaryDirectory() as folder:
                row = measure(model, options, Path(folder))
        except (QglowError, subprocess.CalledProcessError) as error:
            refused.append(model.name)
            print(f"  refused: {' '.join(str(error).split())[:150]}", file=sys.stderr, flush=True)
            continue
        rows[model.name] = row
        print(f"  {' | '.join(row.cells()[1:])}", file=sys.stderr, flush=True)
        if options.json is not None:
            write_atomically(options.json, _document(rows))
    measured = [rows[name] for name in names if name in rows]
    runs = f"Medians of {options.repeat} commands and {options.alternations} turns of calls."
    table = f"{to_markdown(measured)}\n\n{summary(measured)} Refused: {', '.join(refused) or 'none'}. "
    table += f"{runs} {conditions()}"
    page = partial(with_other_rows, "repairs", table, found_names())
    return Outcome(table, page, _document(rows), [line for row in measured for line in row.failures])


def _known(options: argparse.Namespace) -> dict[str, Row]:
    """Rows of the file of --json with --resume. Raises UsageError without a file."""
    if not options.resume:
        return {}
    if options.json is None:
        raise UsageError("--resume takes up the file of --json, which is not given")
    return read_rows(options.json, row_of) if options.json.exists() else {}


def _document(rows: Mapping[str, Row]) -> str:
    return json_document(models=[asdict(row) for row in rows.values()])


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_alternations_option(parser, 41)
    parser.add_argument(
        "--calibration", type=int, default=32, metavar="N", help="profile the first N samples only (32)"
    )
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each command (3)")
    parser.add_argument("--resume", action="store_true", help="keep the rows that the JSON file has")
    add_json_option(parser)


BENCHMARK = Benchmark(__doc__, _measure_all, "repairs", add_options=_add_options)
