"""Latency of qglow int8 on every instruction set of this processor, beside OpenVINO int8 held to the same.

    python scripts/measure_isas.py [--models NAME ...] [--isas NAME ...] [--alternations N] [--update-readme]

Both run the model that qglow quantizes, on one thread, each in a process of its own, because
ONEDNN_MAX_CPU_ISA is read once a process; the processes take turns. The model is the ResNet-50 of
scripts/light_networks.py unless others are named: its weights are random, only its speed means something.
Needs the extra `bench`. Compare ratios of one run only, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from agreement_models import TIMED_NAMES, opened_models
from evaluated_models import EvaluatedModel
from measure_speed import quantize_for_timing
from measuring import Outcome, add_alternations_option, add_json_option, option_parser, run
from readme_tables import conditions, markdown_table

from qglow import load_quantized
from qglow.core.errors import QglowError
from qglow.kernels.isa import host_isas
from qglow.report.bench import MIN_ALTERNATIONS, BenchResult, Contender, result_of_turns
from qglow.report.contenders import of_executable, of_openvino, random_inputs

QGLOW, VINO = "qglow int8", "OpenVINO int8"
HELD_TO = {
    "avx2": "AVX2",
    "avxvnni": "AVX2_VNNI",
    "avx512vnni": "AVX512_CORE_VNNI",
    "avx512vbmi": "AVX512_CORE_VNNI",
    "amx": "AVX512_CORE_AMX",
}
"""What keeps OpenVINO to the same instructions, by qglow's names of them."""
MODEL = "light_resnet50"
WARMUP = 3


@dataclass(frozen=True)
class Row:
    """Both programs of a model on one instruction set."""

    model: str
    isa: str
    result: BenchResult

    @property
    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        ratio, found = self.result.ratio(VINO, QGLOW), self.result.latencies
        times = (f"{found[name].median_ms:.3g}" for name in (QGLOW, VINO))
        spread = f"{ratio.low:.2f} to {ratio.high:.2f}"
        return self.model, self.isa, HELD_TO[self.isa], *times, f"{ratio.ratio:.2f}", spread


class Process:
    """A process that has one program ready and runs it when told to. Raises QglowError where it cannot."""

    def __init__(self, program: str, isa: str, folder: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, program, isa, folder), daemon=True)
        self._process.start()
        other.close()
        failure = self._pipe.recv()
        if failure is not None:
            raise failure

    def turn(self) -> float:
        """Milliseconds of one call, after an untimed one. Raises EOFError where the process has ended."""
        self._pipe.send(None)
        return float(self._pipe.recv())

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join()


def _serve(pipe: Connection, program: str, isa: str, folder: Path) -> None:
    """Say None, or what failed; then one turn for every message, until the other end is closed."""
    try:
        run = _ready(program, isa, folder)
    except QglowError as error:
        pipe.send(error)
        return
    for _ in range(WARMUP):
        run()
    pipe.send(None)
    while True:
        try:
            pipe.recv()
        except EOFError:
            return
        run()
        start = time.perf_counter_ns()
        run()
        pipe.send((time.perf_counter_ns() - start) / 1e6)


def _ready(program: str, isa: str, folder: Path) -> Contender:
    os.environ["ONEDNN_MAX_CPU_ISA"] = HELD_TO[isa]  # read when OpenVINO is loaded, here and now
    model = load_quantized(folder)
    inputs = random_inputs(model.inputs)
    if program == VINO:
        return of_openvino(model.qdq_bytes(), inputs)
    return of_executable(model.compile(isa, threads=1), inputs)


def measure(model: EvaluatedModel, isas: Sequence[str], alternations: int) -> Iterator[Row]:
    """Both programs of a model in turns, on one instruction set after the other."""
    with tempfile.TemporaryDirectory(prefix="qglow-isas-") as folder:
        quantize_for_timing(model, model.load()).save(folder)
        for isa in isas:
            print(f"{model.name} {isa} ...", file=sys.stderr, flush=True)
            yield Row(model.name, isa, _turns(Path(folder), isa, alternations))


def _turns(folder: Path, isa: str, alternations: int) -> BenchResult:
    with ExitStack() as stack:
        runs = [stack.enter_context(closing(Process(name, isa, folder))) for name in (QGLOW, VINO)]
        turns = [[run.turn() for run in runs] for _ in range(alternations)]
    return result_of_turns({QGLOW: 1, VINO: 1}, np.array(turns).T)


def to_markdown(rows: Sequence[Row]) -> str:
    """The table of the README."""
    titles = ("model", "ISA of qglow", "OpenVINO held to", QGLOW, VINO, f"{VINO} / {QGLOW}", "p10 to p90")
    table = markdown_table(titles, [row.cells for row in rows])
    return f"{table}\n\nMilliseconds a call, medians; one thread, batch 1. {conditions()}"


def to_json(rows: Sequence[Row]) -> str:
    """The same as data."""
    found = [
        {
            "model": row.model,
            "isa": row.isa,
            "held_to": HELD_TO[row.isa],
            "median_ms": {name: latency.median_ms for name, latency in row.result.latencies.items()},
            "ratio": row.result.ratio(VINO, QGLOW).ratio,
        }
        for row in rows
    ]
    return json.dumps({"conditions": conditions(), "isas": found}, indent=2) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = option_parser(__doc__, [MODEL])
    isas = [isa.name for isa in host_isas() if isa.name in HELD_TO]
    parser.add_argument("--isas", nargs="+", default=isas, choices=isas, metavar="NAME", help="only these")
    add_alternations_option(parser, 2 * MIN_ALTERNATIONS)
    add_json_option(parser)
    return run("isas", parser, _measure_all, arguments)


def _measure_all(options: argparse.Namespace) -> Outcome:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="qglow-isas-") as folder:
        for model in opened_models(options.models, Path(folder), TIMED_NAMES):
            rows += measure(model, options.isas, options.alternations)
    return Outcome(to_markdown(rows), json=to_json(rows))


if __name__ == "__main__":
    sys.exit(main())
