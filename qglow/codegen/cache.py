"""Compiled code kept between processes, in files named by what they were compiled from.

Names are digests alone, so that nothing in a model can choose a file name.
"""

from __future__ import annotations

import functools
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from qglow.codegen import emission
from qglow.codegen.target import llvm_version
from qglow.core.errors import InputFileError
from qglow.core.files import file_sha256, sha256_hex, write_atomically
from qglow.core.version import __version__
from qglow.kernels.emit.target import VectorTarget

ENVIRONMENT_VARIABLE = "QGLOW_CACHE"
_DIGEST_BYTES = 64
_COMPILING = ("numerics", "instructions", "kernels", "codegen", "targets")
"""Packages whose sources determine the object code of a program."""


def default_folder() -> Path:
    """Return the folder that QGLOW_CACHE names, else `qglow` in the user's cache folder."""
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "qglow"


def cache_key(content: str, target: VectorTarget) -> str:
    """Name of an entry: a digest of what is compiled, the compiler's version and the target."""
    parts = (content, compiler_version(), target.name, target.cpu, target.features)
    return sha256_hex("\0".join(parts).encode())


@functools.cache
def compiler_version() -> str:
    """Identity of everything but the program that determines its code: versions and a digest of sources."""
    root = Path(__file__).parent.parent
    sources = hashlib.sha256()
    for package in _COMPILING:
        for path in sorted((root / package).rglob("*.py")):
            sources.update(path.read_bytes())
    return f"qglow {__version__} {sources.hexdigest()[:16]}, LLVM {llvm_version()}"


def kernel_digest(text: str, target: VectorTarget) -> str:
    """Identity of a kernel's object code: a digest of its LLVM text, the code generator and the target."""
    parts = (text, code_generator_version(), target.triple, target.cpu, target.features)
    return sha256_hex("\0".join(parts).encode())


@functools.cache
def code_generator_version() -> str:
    """Identity of the code generator: the version of LLVM, and a digest of the module that calls it."""
    return f"LLVM {llvm_version()} {file_sha256(Path(emission.__file__))}"


@dataclass(frozen=True)
class ObjectCache:
    """Object files in a folder. An entry begins with a digest of itself, checked at each read."""

    folder: Path
    suffix: str = ".o"

    def get(self, key: str) -> bytes | None:
        """The object file; None if it is missing or damaged."""
        try:
            stored = self._path(key).read_bytes()
        except OSError:
            return None
        digest, code = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
        return code if digest == sha256_hex(code).encode() else None

    def put(self, key: str, code: bytes) -> bool:
        """Store an object file; return False if the folder cannot be written, which is no error."""
        try:
            # No flush to disk: the digest shows at the next read if a crash left only part of the file.
            write_atomically(self._path(key), sha256_hex(code).encode() + code, flush=False)
        except InputFileError:
            return False
        return True

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}{self.suffix}"


@dataclass(frozen=True)
class CachedKernel:
    """Object code of a kernel: its function's name, the most parts its work splits into, and the file."""

    name: str
    units: int
    code: bytes


class KernelCache:
    """Object code of single kernels for one target, shared by all programs.

    A kernel is found by its key without being emitted, or by the digest of its LLVM text once it is
    emitted. The second also finds code of another version of qglow, if that emitted the same text.
    """

    def __init__(self, folder: Path, target: VectorTarget) -> None:
        self._isa = target
        # The version in a key does not cover targets of other packages; the digest of the text covers them.
        self._has_keys = type(target).__module__.partition(".")[0] == __package__.partition(".")[0]
        self._code = ObjectCache(folder / "functions")
        self._names = ObjectCache(folder / "functions", ".name")

    def find(self, key: object) -> CachedKernel | None:
        """The kernel of a key (codegen.functions.call_key); None if it is missing or damaged."""
        entry = self._names.get(self._key_digest(key)) if self._has_keys else None
        if entry is None:
            return None
        units, name = entry.decode().split(" ")
        code = self.code(name)
        return None if code is None else CachedKernel(name, int(units), code)

    def code(self, name: str) -> bytes | None:
        """The object file of the function of this name, which ends in the digest of its text."""
        return self._code.get(name.rpartition("_")[2])

    def add(self, key: object, kernel: CachedKernel) -> None:
        """Store a kernel, if the folder can be written."""
        digest = kernel.name.rpartition("_")[2]
        if self._code.put(digest, kernel.code) and self._has_keys:
            self._names.put(self._key_digest(key), f"{kernel.units} {kernel.name}".encode())

    def _key_digest(self, key: object) -> str:
        return cache_key(repr(key), self._isa)
