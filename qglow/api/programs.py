"""Compiled programs from files."""

from __future__ import annotations

from pathlib import Path

from qglow.runtime.executable import Executable
from qglow.toolchain import CompileOptions
from qglow.toolchain.artefacts import load_executable


def load(path: str | Path, isa: str | None = None, trust: bool = False) -> Executable:
    """Load a .qglow file for this processor.

    isa: an instruction set that the host has (default: QGLOW_ISA, else the best). trust: run the
    machine code that lies in the file; without it the file's checked text is compiled, once, and
    kept in the user's own cache.

    Raises ArtefactError for a file that is damaged or of another version, UsageError for an ISA.
    """
    return load_executable(Path(path), CompileOptions(isa=isa), trust)
