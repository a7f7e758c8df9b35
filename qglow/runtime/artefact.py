"""model.qglow: one file with everything that running needs.

A ZIP archive with stored (uncompressed) members, so that other tools can look inside:

    manifest.json           format version, name, digests of every other member
    program.txt             the instruction program before kernels are selected
    constants/<i>.npy       its constants, in the order of the manifest
    <isa>/code.o            object code, per instruction set
    <isa>/weights.bin       constants packed for its kernels
    <isa>/program.txt       the program as planned for it

The same inputs give the same bytes: members are ordered and carry no time. Object code in
an artefact runs only where the caller trusts the file; else the text is compiled.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qglow.codegen.compiler import CompiledProgram
from qglow.codegen.target import llvm_version
from qglow.core.errors import ArtefactError, TextError, UsageError
from qglow.core.files import atomic_writer, sha256_hex
from qglow.core.types import Array
from qglow.core.version import __version__
from qglow.instructions.program import Program
from qglow.instructions.text import parse_program, print_program
from qglow.kernels.isa import isa_by_name

FORMAT = 2
MANIFEST = "manifest.json"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MAX_MEMBER = 1 << 32


@dataclass(frozen=True)
class CodeVariant:
    """What was compiled for one instruction set: the planned program and its code."""

    program: Program
    compiled: CompiledProgram
    compiler: str

    @property
    def is_current(self) -> bool:
        """Whether this very version of the compiler made it."""
        return self.compiler == compiler_version()


@dataclass(frozen=True)
class Artefact:
    """A model.qglow in memory. `code` maps ISA names to what was stored for them.

    `identity` is a digest of the program and its constants, whatever code lies beside them.
    """

    program: Program
    code: Mapping[str, CodeVariant]
    identity: str


def compiler_version() -> str:
    """Versions of everything that decides what object code a program becomes."""
    return f"qglow {__version__}, LLVM {llvm_version()}"


def save_artefact(path: Path, program: Program, code: Iterable[CodeVariant] = ()) -> None:
    """Write an artefact atomically: `program` before kernel selection, and code for some ISAs."""
    members = _program_members(program)
    isas: dict[str, Any] = {}
    for variant in sorted(code, key=lambda v: v.compiled.isa.name):
        compiled, isa = variant.compiled, variant.compiled.isa.name
        members[f"{isa}/code.o"] = compiled.object_code
        members[f"{isa}/weights.bin"] = compiled.weights.tobytes()
        members[f"{isa}/program.txt"] = print_program(variant.program).encode()
        isas[isa] = {
            "entry": compiled.entry,
            "team_entry": compiled.team_entry,
            "compiler": variant.compiler,
            "arena_size": compiled.arena_size,
            "placeholders": list(compiled.placeholders),
        }
    manifest = {
        "format": FORMAT,
        "name": program.name,
        "constants": [buffer.name for buffer in program.constants],
        "isas": isas,
        "sha256": {name: sha256_hex(data) for name, data in sorted(members.items())},
    }
    members = {MANIFEST: json.dumps(manifest, indent=1, sort_keys=True).encode(), **members}
    with atomic_writer(path) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, _EPOCH)
            info.external_attr = 0o644 << 16
            archive.writestr(info, data)


def program_identity(program: Program) -> str:
    """The digest that an artefact of this program would have as its identity."""
    return _identity({name: sha256_hex(data) for name, data in _program_members(program).items()})


def load_artefact(path: Path) -> Artefact:
    """Read and check an artefact. Raises ArtefactError for anything that does not verify."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _parse(path, archive)
    except FileNotFoundError as error:
        raise ArtefactError(f"{path}: no such file") from error
    except (OSError, zipfile.BadZipFile, EOFError) as error:
        raise ArtefactError(f"{path} is not a readable artefact: {error}") from error
    except (KeyError, ValueError, TypeError, TextError, UsageError) as error:
        raise ArtefactError(f"{path} is damaged: {error}; quantize the model again") from error


def _parse(path: Path, archive: zipfile.ZipFile) -> Artefact:
    manifest = json.loads(_read(archive, MANIFEST))
    if manifest["format"] != FORMAT:
        raise ArtefactError(f"{path} has format {manifest['format']}; this qglow reads {FORMAT}")
    members = {name: _read(archive, name) for name in manifest["sha256"]}
    for name, digest in manifest["sha256"].items():
        if sha256_hex(members[name]) != digest:
            raise ArtefactError(
                f"{path} is damaged: {name} does not match its digest; quantize the model again"
            )
    constants = {
        name: _from_npy(members[f"constants/{index}.npy"]) for index, name in enumerate(manifest["constants"])
    }
    program = parse_program(members["program.txt"].decode(), constants)
    code = {isa: _variant(isa, entry, members, constants) for isa, entry in manifest["isas"].items()}
    digests = {
        n: d for n, d in manifest["sha256"].items() if n.startswith("constants/") or n == "program.txt"
    }
    return Artefact(program, code, _identity(digests))


def _variant(
    isa: str, entry: Mapping[str, Any], members: Mapping[str, bytes], constants: Mapping[str, Array]
) -> CodeVariant:
    program = parse_program(members[f"{isa}/program.txt"].decode(), constants)
    compiled = CompiledProgram(
        isa_by_name(isa),
        members[f"{isa}/code.o"],
        np.frombuffer(members[f"{isa}/weights.bin"], np.uint8),
        int(entry["arena_size"]),
        tuple(str(name) for name in entry["placeholders"]),
        str(entry["entry"]),
        None if entry["team_entry"] is None else str(entry["team_entry"]),
    )
    return CodeVariant(program, compiled, str(entry["compiler"]))


def _program_members(program: Program) -> dict[str, bytes]:
    members = {"program.txt": print_program(program).encode()}
    for index, buffer in enumerate(program.constants):
        members[f"constants/{index}.npy"] = _to_npy(np.asarray(buffer.data))
    return members


def _identity(digests: Mapping[str, str]) -> str:
    return sha256_hex(json.dumps(dict(sorted(digests.items()))).encode())


def _read(archive: zipfile.ZipFile, name: str) -> bytes:
    info = archive.getinfo(name)
    if info.file_size > _MAX_MEMBER or info.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"member {name} is not stored as it should be")
    return archive.read(info)


def _to_npy(array: Array) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
    return stream.getvalue()


def _from_npy(data: bytes) -> Array:
    array: Array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    return array
