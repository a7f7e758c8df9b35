"""C sources of a bundle, compiled for this process by the system's own compiler."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

from qglow.core.errors import ArtefactError, UsageError
from qglow.emulation.manifest import Manifest

FLAGS = ("-std=c99", "-O2", "-ffp-contract=off", "-fPIC", "-shared")


def compile_sources(manifest: Manifest) -> ctypes.CDLL:
    """Compile a bundle of C sources and load it.

    Raises UsageError without a C compiler, ArtefactError where the sources do not compile.
    """
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None:
        raise UsageError(f"{manifest.folder} is C source, and no C compiler is installed to build it")
    sources = [str(manifest.path(name).resolve()) for name in manifest.sources]
    with tempfile.TemporaryDirectory(prefix="qglow-bundle-") as folder:
        result = Path(folder) / "bundle.so"
        done = subprocess.run(
            [compiler, *FLAGS, *sources, "-o", str(result)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            said = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())
            raise ArtefactError(f"{manifest.folder} does not compile: {said[:300]}")
        return ctypes.CDLL(str(result))
