"""How long quantizing and loading take, and how much memory a loaded program needs.

For every model, each command and each load in a process of its own, medians of N:
  cold     seconds of `qglow quantize --profile` with an empty code cache, from the shell's side;
  warm     the same, once the cache has the code;
  load     milliseconds of `qglow.load(model.qglow, trust=True)`, whose object code is valid;
  memory   growth of the peak resident set from where qglow is imported until the program has been
           loaded and called, in MiB and relative to its weights and planned activations.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from qglow import save_profile
from scripts.benchmarks.frame import Benchmark, Outcome, add_json_option, json_document, with_progress
from scripts.benchmarks.models.evaluated import EvaluatedModel
from scripts.benchmarks.models.opened import opened_models
from scripts.benchmarks.tables import conditions, markdown_table

MODELS = ("squeezenet1.1", "resnet50v2s3_tin202", "mobilenetv2_tin202", "yolox_nano", "light_resnet50")
CALIBRATION_SAMPLES = 8
MOST_SECONDS = {"squeezenet1.1": (20.0, 3.0)}
"""What is promised of quantizing: cold and warm."""
MIB = 2**20
TITLES = (
    "model",
    "quantize, cold, s",
    "quantize, warm, s",
    "load, ms",
    "weights, MiB",
    "activations, MiB",
    "peak of loading and a call, MiB",
    "relative",
)
LOADING = """
import json, sys, time
from pathlib import Path
import numpy as np
import qglow

def peak():
    [line] = [x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM")]
    return 1024 * int(line.split()[1])

Path("/proc/self/clear_refs").write_text("5")  # the peak becomes what is resident now
load = qglow.load  # which imports what it needs
before = peak()
start = time.perf_counter()
program = load(sys.argv[1], trust=True, threads=1)
seconds = time.perf_counter() - start
program({name: np.zeros(kind.shape, kind.element.dtype) for name, kind in program.inputs.items()})
json.dump([seconds, peak() - before, program.weight_bytes, program.arena_bytes], sys.stdout)
"""


@dataclass(frozen=True)
class Row:
    """One model: seconds, and bytes."""

    model: str
    cold: float
    warm: float
    load: float
    peak_bytes: int
    weight_bytes: int
    activation_bytes: int

    @property
    def relative_peak(self) -> float:
        """Of what the program cannot do without."""
        return self.peak_bytes / (self.weight_bytes + self.activation_bytes)

    def failures(self) -> list[str]:
        """What takes longer than promised."""
        limits = MOST_SECONDS.get(self.model, (float("inf"), float("inf")))
        pairs = zip(("cold", "warm"), (self.cold, self.warm), limits, strict=True)
        return [f"{which}: {took:.1f} s, more than {most:g} s" for which, took, most in pairs if took > most]


def measure(model: EvaluatedModel, repeat: int, folder: Path) -> Row:
    """All figures of one model; `folder` is empty, and left full."""
    profile, output, cache = folder / "profile.yaml", folder / "out", folder / "cache"
    save_profile(model.profile(model.load(), CALIBRATION_SAMPLES), profile)
    cold = [_quantize(profile, output, Path(f"{cache}{turn}")) for turn in range(repeat)]
    warm = [_quantize(profile, output, Path(f"{cache}0")) for _ in range(repeat)]
    loads = [_load(output / "model.qglow") for _ in range(repeat)]
    seconds, peak, weights, activations = (statistics.median(column) for column in zip(*loads, strict=True))
    medians = statistics.median(cold), statistics.median(warm), seconds
    return Row(model.name, *medians, int(peak), int(weights), int(activations))


def _quantize(profile: Path, output: Path, cache: Path) -> float:
    """Seconds of the command. Raises CalledProcessError where it fails."""
    command = [sys.executable, "-m", "qglow.cli.main", "quantize", "--profile", str(profile)]
    # As installed: with bytecode of the package, which an environment may forbid to write.
    bytecode = {"PYTHONPYCACHEPREFIX": str(profile.parent / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}
    environment = {**os.environ, **bytecode, "QGLOW_CACHE": str(cache)}
    start = time.perf_counter()
    subprocess.run([*command, "-o", str(output)], env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def _load(path: Path) -> tuple[float, int, int, int]:
    """Seconds of loading, growth of the peak, and the program's bytes of weights and activations."""
    command = [sys.executable, "-c", LOADING, str(path)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds, peak, weights, activations = json.loads(said)
    return seconds, peak, weights, activations


def to_markdown(rows: Iterable[Row], repeat: int) -> str:
    """The table of the documentation."""
    body = [
        (
            row.model,
            f"{row.cold:.1f}",
            f"{row.warm:.1f}",
            f"{1000 * row.load:.0f}",
            f"{row.weight_bytes / MIB:.1f}",
            f"{row.activation_bytes / MIB:.1f}",
            f"{row.peak_bytes / MIB:.1f}",
            f"{row.relative_peak:.2f}",
        )
        for row in rows
    ]
    return f"{markdown_table(TITLES, body)}\n\nMedians of {repeat}. {conditions()}"


def _measure_all(options: argparse.Namespace) -> Outcome:
    rows = []
    for model in with_progress(opened_models(options.models)):
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(model, options.repeat, Path(folder)))
    document = json_document(models=[asdict(row) for row in rows])
    broken = [f"{row.model}, {what}" for row in rows for what in row.failures()]
    return Outcome(to_markdown(rows, options.repeat), json=document, failures=broken)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each command (3)")
    add_json_option(parser)


BENCHMARK = Benchmark(__doc__, _measure_all, "compile", MODELS, _add_options)
