"""Peak memory of `qglow profile` over a directory of images, for few and for many samples.

    python scripts/measure_memory.py [--update-readme]

Every run is a process of its own. Peaks are the largest resident set, as the kernel counts it. A first
run, not counted, fills the code cache: compiling needs LLVM, whose pages are not the samples' doing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from evaluated_models import REPOSITORY, EvaluatedModel, chosen_models
from readme_tables import conditions, markdown_table, update_readme

from qglow.core.errors import QglowError

MODEL = "squeezenet1.1"
SAMPLES = (32, 512)
MOST_GROWTH = 0.05


def peak_mib(model: EvaluatedModel, samples: int, folder: Path) -> float:
    """Largest resident set in MiB of one `qglow profile`. Raises CalledProcessError where it fails."""
    words = [
        *("profile", str(model.path), "--data", str(model.root / model.calibration.data)),
        *("--samples", str(samples), "--recipe", str(REPOSITORY / "recipes" / f"{model.name}.yaml")),
        *("-o", str(folder / "profile.yaml")),
    ]
    command = [sys.executable, "-m", "qglow.cli.main", *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return usage.ru_maxrss / 1024


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 where memory grows with the number of samples."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--update-readme", action="store_true", help="put the table into README.md")
    options = parser.parse_args(arguments)
    try:
        [model] = chosen_models([MODEL])
        model.load()
        with tempfile.TemporaryDirectory() as name:
            peak_mib(model, 1, Path(name))
            peaks = [peak_mib(model, samples, Path(name)) for samples in SAMPLES]
        rows = [(str(samples), f"{peak:.0f}") for samples, peak in zip(SAMPLES, peaks, strict=True)]
        table = markdown_table((f"samples of {MODEL}", "peak memory, MiB"), rows) + f"\n\n{conditions()}"
        print(table)
        if options.update_readme:
            update_readme("memory", table)
    except QglowError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return int(max(peaks) > (1 + MOST_GROWTH) * min(peaks))


if __name__ == "__main__":
    sys.exit(main())
