"""Peak memory of `qglow profile` over a directory of images, for few and for many samples.

Every run is a process of its own. Peaks are the largest resident set, as the kernel counts it. A first
run, not counted, fills the code cache: compiling needs LLVM, whose pages are not the samples' doing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from scripts.benchmarks.frame import Benchmark, Outcome, with_progress
from scripts.benchmarks.models.evaluated import REPOSITORY, EvaluatedModel, chosen_models
from scripts.benchmarks.models.labelled import MODELS
from scripts.benchmarks.tables import conditions, markdown_table
from scripts.benchmarks.workers.peak import run_alone

MODEL = "squeezenet1.1"
SAMPLES = (32, 512)
MOST_GROWTH = 0.05
TITLES = ("model", "samples", "peak memory, MiB")


def peak_mib(model: EvaluatedModel, samples: int, folder: Path) -> float:
    """Largest resident set in MiB of one `qglow profile`. Raises CalledProcessError where it fails."""
    words = [
        *("profile", str(model.path), "--data", str(model.root / model.calibration.data)),
        *("--samples", str(samples), "--recipe", str(REPOSITORY / "recipes" / f"{model.name}.yaml")),
        *("-o", str(folder / "profile.yaml")),
    ]
    return run_alone([sys.executable, "-m", "qglow.cli.main", *words]).mib


def _measure_all(options: argparse.Namespace) -> Outcome:
    rows, failures = [], []
    for model in with_progress(chosen_models(options.models, MODELS)):
        model.load()
        with tempfile.TemporaryDirectory() as name:
            peak_mib(model, 1, Path(name))
            peaks = [peak_mib(model, samples, Path(name)) for samples in SAMPLES]
        rows += [(model.name, f"{n}", f"{peak:.0f}") for n, peak in zip(SAMPLES, peaks, strict=True)]
        if max(peaks) > (1 + MOST_GROWTH) * min(peaks):
            failures.append(f"{model.name}: memory grows with the number of samples")
    table = f"{markdown_table(TITLES, rows)}\n\n{conditions()}"
    return Outcome(table, failures=failures)


BENCHMARK = Benchmark(__doc__, _measure_all, "memory", (MODEL,))
