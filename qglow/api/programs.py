"""Compiled programs from files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Unpack

from qglow.api.keywords import ProgramFileKeywords
from qglow.api.options import ProgramFileOptions
from qglow.core.errors import UsageError
from qglow.core.keywords import taking
from qglow.host.libraries import use_libraries
from qglow.runtime.executable import Executable
from qglow.toolchain import CompileOptions
from qglow.toolchain.loading import load_program_file


@taking(ProgramFileOptions, places=("isa", "trust", "threads"))
def load(path: str | Path, **options: Unpack[ProgramFileKeywords]) -> Executable:
    """Load a .qglow file for this processor.

    isa: an instruction set that the host has (default: QGLOW_ISA, else the best). trust: run the
    machine code that lies in the file; without it the file's checked text is compiled, once, and
    kept in the user's own cache. threads: how many may share a call (default: QGLOW_THREADS, else
    the physical cores that the process may use); results do not depend on it.
    custom_ops: libraries of custom operators for the nodes that run in onnxruntime; a file never brings one.
    A file with programs for several shapes gives an executable that takes all of them, and no others.

    Raises ArtefactError for a file that is damaged or of another version, UsageError for an ISA or a number.
    """
    if not isinstance(path, str | os.PathLike):
        raise UsageError(
            f"a program is loaded from the path of a .qglow file, not from a {type(path).__name__}; "
            "`qglow.load_model` opens models in memory, and their `compile` gives programs",
            field="path",
        )
    use_libraries(options["custom_ops"])
    code = CompileOptions(isa=options["isa"], threads=options["threads"])
    return load_program_file(Path(path), code, options["trust"])
