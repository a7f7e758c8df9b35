"""Executables from model.qglow, with one program or with several."""

from __future__ import annotations

from pathlib import Path

from qglow.runtime.artefact import FORMATS
from qglow.runtime.collection import FORMAT
from qglow.runtime.executable import Executable
from qglow.runtime.members import opened, refusing
from qglow.toolchain.artefacts import load_executable
from qglow.toolchain.options import CompileOptions


def load_program_file(path: Path, options: CompileOptions | None = None, trust: bool = False) -> Executable:
    """Load model.qglow for this host, as `load_executable`; of several programs a call runs the one it needs.

    Raises ArtefactError, and UsageError, also where onnxruntime is missing for nodes of the file.
    """
    options = options or CompileOptions()
    with refusing(path):
        archive = opened(path, (*FORMATS, FORMAT))
    if archive.manifest["format"] != FORMAT:
        return load_executable(path, options, trust)
    from qglow.toolchain.collected import load_collection  # compiles where there is no code

    return load_collection(archive, options, trust)
