"""Compilers of the host, for tests of what a user builds with them."""

from __future__ import annotations

import platform
import shutil
import subprocess
from functools import cache

import pytest


def c_compiler() -> str:
    """Path of a C compiler whose code this process can load; skip where there is none."""
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found is None:
        pytest.skip("no C compiler is installed")
    if _processor(found) != platform.machine().lower():
        pytest.skip(f"the C compiler makes code for {_processor(found)}, not for this processor")
    return found


@cache
def _processor(compiler: str) -> str:
    """The processor that a compiler makes code for, as `platform.machine` calls it.

    Under an emulator of one program, compilers are those of the machine that emulates.
    """
    done = subprocess.run([compiler, "-dumpmachine"], capture_output=True, text=True, check=True)
    return done.stdout.strip().split("-")[0].lower()
