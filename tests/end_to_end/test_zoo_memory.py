"""Peak memory of `qglow profile` on a directory of images does not depend on their number."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.zoo import REPOSITORY, zoo_model, zoo_path

TOLERANCE = 0.05
PROGRAM = """
import sys
from qglow.cli.main import main
code = main(sys.argv[1:])
for line in open("/proc/self/status"):
    if line.startswith("VmHWM:"):
        print("peak", line.split()[1])
sys.exit(code)
"""
"""The command in a process of its own. (ru_maxrss would count the parent's memory before exec.)"""


def peak_kilobytes(count: int, folder: Path) -> int:
    """Peak resident memory of profiling so many photos."""
    words = [
        "profile",
        zoo_model("squeezenet1.1"),
        "--data",
        zoo_path("data/imagenet_sample"),
        "--samples",
        count,
        "--recipe",
        REPOSITORY / "recipes" / "squeezenet1.1.yaml",
        "-o",
        folder / f"{count}.yaml",
    ]
    command = [sys.executable, "-c", PROGRAM, *map(str, words)]
    finished = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=False)
    assert finished.returncode == 0, finished.stderr
    return int(finished.stdout.split("peak")[-1])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads peak memory from /proc")
def test_peak_memory_is_the_same_for_32_and_512_samples(tmp_path: Path) -> None:
    peak_kilobytes(1, tmp_path)  # code is in the cache from here on, so that no run pays for LLVM
    few, many = (peak_kilobytes(count, tmp_path) for count in (32, 512))
    assert abs(many - few) <= TOLERANCE * few, f"{few} kB for 32 samples, {many} kB for 512"
