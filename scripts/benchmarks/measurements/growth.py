"""How the cost of profiling, quantizing and compiling grows with the number of nodes.

Networks of one kind (`--models`) and several sizes, of tensors so small that nodes cost and numbers do not.
Each runs in a process of its own with an empty code cache. Seconds are those of the processor, the least of
N, all processes and threads together:
  load, profile, quantize, compile   of the steps, with 4 samples;
  three steps                        of profile, quantize and compile;
  exponent                           with which these grow from the size before: 1 is linear.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from scripts.benchmarks.frame import Benchmark, Outcome, add_json_option, announce, json_document
from scripts.benchmarks.models.growing import KINDS
from scripts.benchmarks.tables import REPOSITORY, conditions, markdown_table

SIZES = (150, 600, 2400, 5000)
STEPS = ("load", "profile", "quantize", "compile")
MOST_SECONDS = {("residual", 600): 6.0, ("residual", 5000): 60.0, ("transformer", 294): 5.0}
"""What is promised of the three steps together."""
MOST_EXPONENT = 1.15
"""The promise for the three steps, from the smallest size to the largest."""
TITLES = ("network", "nodes", *(f"{step}, s" for step in STEPS), "three steps, s", "exponent")


@dataclass(frozen=True)
class Row:
    """A network's seconds by step."""

    kind: str
    nodes: int
    seconds: dict[str, float]

    @property
    def total(self) -> float:
        """Seconds of profiling, quantizing and compiling."""
        return sum(self.seconds[step] for step in STEPS[1:])

    def exponent(self, smaller: Row) -> float:
        """The power of the number of nodes that the cost grows with."""
        return math.log(self.total / smaller.total) / math.log(self.nodes / smaller.nodes)


def measure(kind: str, nodes: int, repeat: int) -> Row:
    """The least of several runs, step by step. Raises CalledProcessError where one fails."""
    runs = [_run(kind, nodes) for _ in range(repeat)]
    return Row(kind, nodes, {step: min(run[step] for run in runs) for step in STEPS})


def _run(kind: str, nodes: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "made")
        made.mkdir()
        command = [sys.executable, "-m", "scripts.benchmarks.workers.growth", kind, str(nodes), str(made)]
        environment = {**os.environ, "QGLOW_CACHE": str(Path(folder, "cache"))}
        done = subprocess.run(command, cwd=REPOSITORY, env=environment, check=True, stdout=subprocess.PIPE)
    seconds: dict[str, float] = json.loads(done.stdout)
    return seconds


def failures(rows: Sequence[Row]) -> Iterator[str]:
    """One line for each promise that does not hold."""
    for row in rows:
        most = MOST_SECONDS.get((row.kind, row.nodes), math.inf)
        if row.total > most:
            yield f"{row.kind}, {row.nodes} nodes: {row.total:.1f} s, more than {most:g} s"
    for kind in dict.fromkeys(row.kind for row in rows):
        first, *others = sorted((row for row in rows if row.kind == kind), key=lambda row: row.nodes)
        if others and others[-1].exponent(first) > MOST_EXPONENT:
            yield f"{kind}: exponent {others[-1].exponent(first):.2f}, more than {MOST_EXPONENT}"


def to_markdown(rows: Sequence[Row], repeat: int) -> str:
    """The table of the documentation."""
    body, before = [], dict[str, Row]()
    for row in rows:
        smaller = before.get(row.kind)
        grown = "" if smaller is None else f"{row.exponent(smaller):.2f}"
        steps = (f"{row.seconds[step]:.2f}" for step in STEPS)
        body.append((row.kind, str(row.nodes), *steps, f"{row.total:.1f}", grown))
        before[row.kind] = row
    return f"{markdown_table(TITLES, body)}\n\nThe least of {repeat}. {conditions()}"


def _measure_all(options: argparse.Namespace) -> Outcome:
    rows = []
    for kind in options.models:
        for nodes in sorted(options.sizes):
            announce(kind, f"{nodes} nodes")
            rows.append(measure(kind, nodes, options.repeat))
    document = json_document(networks=[{**asdict(row), "total": row.total} for row in rows])
    return Outcome(to_markdown(rows, options.repeat), json=document, failures=list(failures(rows)))


def _add_options(parser: argparse.ArgumentParser) -> None:
    sizes = f"numbers of nodes ({' '.join(map(str, SIZES))})"
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="N", help=sizes)
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="runs of each (1)")
    add_json_option(parser)


BENCHMARK = Benchmark(__doc__, _measure_all, "growth", tuple(KINDS), _add_options)
