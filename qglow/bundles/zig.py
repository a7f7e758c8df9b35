"""The C compiler and linker for every processor, which comes as the Python package ziglang."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from qglow.core.errors import ArtefactError, UsageError


def run_zig(arguments: Sequence[str], folder: Path, what: str) -> None:
    """Run a command of zig in a folder. what: what it does not do if it fails, for the message.

    Raises UsageError where the package is missing, ArtefactError with the first error otherwise.
    """
    if importlib.util.find_spec("ziglang") is None:
        raise UsageError(
            "this needs a compiler and linker for other processors: pip install 'qglow[emulation]'"
        )
    command = [sys.executable, "-m", "ziglang", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        said = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())
        raise ArtefactError(f"{what}: {said[:300]}")


def link_module(library: Path, exports: Sequence[str], result: Path) -> None:
    """Link a library into a module of WebAssembly with its memory, a heap behind its data, and these exports.

    Raises what `run_zig` does.
    """
    names = [f"--export={name}" for name in (*exports, "__heap_base")]
    arguments = ["wasm-ld", "--no-entry", "--gc-sections", "--strip-debug", *names]
    paths = ["--whole-archive", str(library.resolve()), "-o", str(result.resolve())]
    run_zig([*arguments, *paths], result.parent, f"{library} does not link")
