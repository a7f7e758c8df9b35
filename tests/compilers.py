"""Compilers of the host, for tests of what a user builds with them."""

from __future__ import annotations

import shutil

import pytest


def c_compiler() -> str:
    """Path of the C compiler; skip where none is installed."""
    found = shutil.which("cc") or shutil.which("gcc")
    if found is None:
        pytest.skip("no C compiler is installed")
    return found
