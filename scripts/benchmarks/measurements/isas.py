"""Latency of qglow int8 on every instruction set of this processor, beside OpenVINO int8 held to the same.

Both run the model that qglow quantizes, on one thread, each in a process of its own, because
ONEDNN_MAX_CPU_ISA is read once a process; the processes take turns. The model is a ResNet-50 with random
weights, whose speed alone means something, unless others are named.
Needs the extra `bench`. Compare ratios of one run only, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qglow.report.bench import MIN_ALTERNATIONS, BenchResult, result_of_turns
from qglow.targets.registry import running_names
from scripts.benchmarks.frame import (
    Benchmark,
    Outcome,
    add_alternations_option,
    add_json_option,
    announce,
    json_document,
)
from scripts.benchmarks.models.evaluated import EvaluatedModel
from scripts.benchmarks.models.opened import TIMED_NAMES, opened_models
from scripts.benchmarks.tables import conditions, markdown_table
from scripts.benchmarks.workers.process import Worker

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


def measure(model: EvaluatedModel, isas: Sequence[str], alternations: int) -> Iterator[Row]:
    """Both programs of a model in turns, on one instruction set after the other."""
    with tempfile.TemporaryDirectory(prefix="qglow-isas-") as folder:
        model.quantize_for_timing(model.load()).save(folder)
        for isa in isas:
            announce(model.name, isa)
            yield Row(model.name, isa, _turns(Path(folder), isa, alternations))


def _turns(folder: Path, isa: str, alternations: int) -> BenchResult:
    held = {"ONEDNN_MAX_CPU_ISA": HELD_TO[isa]}
    with ExitStack() as stack:
        workers = [
            stack.enter_context(Worker("scripts.benchmarks.workers.isa", [program, isa, str(folder)], held))
            for program in ("qglow", "openvino")
        ]
        for worker in workers:
            worker.ask("build")
            worker.ask("turn", repeats=WARMUP)
        turns = [[float(worker.ask("turn", repeats=1)) for worker in workers] for _ in range(alternations)]
    return result_of_turns({QGLOW: 1, VINO: 1}, np.array(turns).T)


def to_markdown(rows: Sequence[Row]) -> str:
    """The table of the documentation."""
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
    return json_document(isas=found)


def _measure_all(options: argparse.Namespace) -> Outcome:
    rows: list[Row] = []
    for model in opened_models(options.models, TIMED_NAMES):
        rows += measure(model, options.isas, options.alternations)
    return Outcome(to_markdown(rows), json=to_json(rows))


def _add_options(parser: argparse.ArgumentParser) -> None:
    isas = [name for name in running_names() if name in HELD_TO]
    parser.add_argument("--isas", nargs="+", default=isas, choices=isas, metavar="NAME", help="only these")
    add_alternations_option(parser, 2 * MIN_ALTERNATIONS)
    add_json_option(parser)


BENCHMARK = Benchmark(__doc__, _measure_all, "isas", (MODEL,), _add_options)
