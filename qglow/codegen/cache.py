"""Compiled code kept between processes: files named by what they were compiled from."""

from __future__ import annotations

import functools
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from qglow.codegen.target import llvm_version
from qglow.core.errors import InputFileError
from qglow.core.files import sha256_hex, write_atomically
from qglow.core.version import __version__
from qglow.kernels.isa import Isa

ENVIRONMENT_VARIABLE = "QGLOW_CACHE"
_DIGEST_BYTES = 64
_COMPILING = ("numerics", "instructions", "kernels", "codegen")
"""Packages that a program goes through on its way to object code."""


def default_folder() -> Path:
    """QGLOW_CACHE, else `qglow` in the user's cache folder."""
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "qglow"


def cache_key(content: str, isa: Isa) -> str:
    """Name of an entry: a digest of what is compiled, the compiler's version and the target."""
    parts = (content, compiler_version(), isa.name, isa.cpu, isa.features)
    return sha256_hex("\0".join(parts).encode())


@functools.cache
def compiler_version() -> str:
    """What decides which code a program becomes: versions, and a digest of the sources that compile."""
    root = Path(__file__).parent.parent
    sources = hashlib.sha256()
    for package in _COMPILING:
        for path in sorted((root / package).rglob("*.py")):
            sources.update(path.read_bytes())
    return f"qglow {__version__} {sources.hexdigest()[:16]}, LLVM {llvm_version()}"


@dataclass(frozen=True)
class ObjectCache:
    """Object files in a folder. An entry begins with a digest of itself, checked at each read."""

    folder: Path

    def get(self, key: str) -> bytes | None:
        """The object file, None where there is none or it is damaged."""
        try:
            stored = self._path(key).read_bytes()
        except OSError:
            return None
        digest, code = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
        return code if digest == sha256_hex(code).encode() else None

    def put(self, key: str, code: bytes) -> bool:
        """Store an object file; False where the folder cannot be written, which harms nothing."""
        try:
            write_atomically(self._path(key), sha256_hex(code).encode() + code)
        except InputFileError:
            return False
        return True

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.o"
