"""A command in a process of its own: how long it takes, and the most memory that it holds."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from scripts.benchmarks.models.evaluated import REPOSITORY


@dataclass(frozen=True)
class Run:
    """A command that has ended.

    mib: its largest resident set, mapped pages among it, and at least that of the process that began it,
    which the kernel counts until the command is there.
    """

    seconds: float
    mib: float
    output: str


def run_alone(command: Sequence[str]) -> Run:
    """Run a command in the repository, its errors unseen. Raises CalledProcessError where it fails."""
    begun = time.monotonic()
    process = subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Run(time.monotonic() - begun, usage.ru_maxrss / 1024, output)
