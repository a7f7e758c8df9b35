"""model.qglow: one file with everything that running needs.

A ZIP archive with stored (uncompressed) members, so that other tools can look inside:

    manifest.json           format version, name, signatures, digests of every other member
    program.txt             the instruction program before kernels are selected
    constants/<i>.npy       its constants, in the order of the manifest
    tail.json, tail.onnx    nodes that onnxruntime runs behind the program, and what they read, if any
    <isa>/code<i>.o         object code, per target, in one or several files
    <isa>/weights.bin       constants packed for its kernels, at the edge of a page
    <isa>/program.txt       the program as planned for it

The same inputs give the same bytes: members are ordered and carry no time. Object code in
an artefact runs only where the caller trusts the file; else the text is compiled. Compiled
code is cached as an artefact without a program.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from qglow.core.files import atomic_writer, sha256_hex
from qglow.core.reading import parse_json
from qglow.core.types import Array
from qglow.host.session import decode
from qglow.host.tail import HostedTail
from qglow.instructions.program import Program
from qglow.instructions.text import parse_program, print_program
from qglow.instructions.verifier import verify_program
from qglow.runtime.archive import Archive, write_archive
from qglow.runtime.members import from_npy, identity_of, opened, refusing, to_npy
from qglow.runtime.variant import CodeVariant, stored_variant, variant_entry, variant_members, weights_member

FORMAT = 4
_WITH_TAIL = 5
"""The format of an artefact with a tail, without which its program is another model."""
FORMATS = (FORMAT, _WITH_TAIL)
_PROGRAM = "program.txt"
_TAIL, _TAIL_MODEL = "tail.json", "tail.onnx"


@dataclass(frozen=True)
class StoredProgram:
    """A program before kernel selection, and the tail behind it, as the members of an artefact."""

    name: str
    constants: tuple[str, ...]
    members: Mapping[str, bytes]
    tail: HostedTail | None = None

    @staticmethod
    def of(program: Program, tail: HostedTail | None = None) -> StoredProgram:
        """Print the program and its constants."""
        members = {_PROGRAM: print_program(program).encode()}
        for index, buffer in enumerate(program.all_constants()):
            members[_constant(index)] = to_npy(np.asarray(buffer.data))
        return StoredProgram(program.name, tuple(b.name for b in program.all_constants()), members, tail)

    @property
    def text(self) -> str:
        """The listing."""
        return self.members[_PROGRAM].decode()

    @cached_property
    def identity(self) -> str:
        """The digest that an artefact of this program has as its identity."""
        return identity_of(self.digests)

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """SHA-256 of the members by name."""
        return {name: sha256_hex(data) for name, data in self.members.items()}


class Artefact:
    """A model.qglow that is mapped into memory. Members are checked when they are read.

    All methods raise ArtefactError for damaged members.
    """

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        manifest = archive.manifest
        self._constants = [str(name) for name in manifest["constants"]]
        self._names = [_PROGRAM, *(_constant(index) for index in range(len(self._constants)))]
        self._isas: Mapping[str, object] = manifest["isas"]
        self._has_tail = manifest["format"] == _WITH_TAIL
        self.identity = identity_of({name: str(manifest["sha256"][name]) for name in self._names})
        """A digest of the program and its constants, whatever code lies beside them."""

    def check(self) -> None:
        """Check the program and its constants against the identity."""
        with refusing(self._archive.path):
            self._archive.check(self._names)

    def program(self) -> Program:
        """The program before kernel selection, verified."""
        with refusing(self._archive.path):
            text = bytes(self._archive.read(_PROGRAM)).decode()
            program = parse_program(text, self.constants())
            verify_program(program, f"in {self._archive.path}")
        return program

    def constants(self) -> dict[str, Array]:
        """The data of every constant by name."""
        with refusing(self._archive.path):
            members = (self._archive.read(_constant(index)) for index in range(len(self._constants)))
            return {name: from_npy(data) for name, data in zip(self._constants, members, strict=True)}

    def tail(self) -> HostedTail | None:
        """The nodes behind the program; None for a program that is the whole model."""
        if not self._has_tail:
            return None
        with refusing(self._archive.path):
            plain = parse_json(bytes(self._archive.read(_TAIL)))
            return HostedTail.from_plain(plain, bytes(self._archive.read(_TAIL_MODEL)))

    def variant(self, target: str, compiler: str) -> CodeVariant | None:
        """Code in the archive for a target, by this version of its compiler; None if there is none."""
        with refusing(self._archive.path):
            return _stored_variant(self._archive, target, compiler)


def save_artefact(path: Path, stored: StoredProgram, code: Iterable[CodeVariant] = ()) -> None:
    """Write an artefact atomically: a program, and code for some targets."""
    facts: dict[str, object] = {"name": stored.name, "constants": list(stored.constants)}
    if stored.tail is not None:
        facts["format"] = _WITH_TAIL
    members = {**stored.members, **_tail_members(stored.tail)}
    _save(path, facts, members, stored.digests, sorted(code, key=lambda v: v.target))


def load_artefact(path: Path) -> Artefact:
    """Open an artefact. Raises ArtefactError for a file that is none, or of another format."""
    with refusing(path):
        return Artefact(opened(path, FORMATS))


def save_code(path: Path, identity: str, variant: CodeVariant) -> None:
    """Write compiled code of the program with this identity, atomically."""
    _save(path, {"identity": identity}, {}, {}, [variant])


def load_code(path: Path, identity: str, target: str, compiler: str) -> CodeVariant | None:
    """Load what `save_code` wrote; None if it is of another program, or by another compiler.

    Raises ArtefactError.
    """
    with refusing(path):
        archive = opened(path, FORMATS)
        if archive.manifest["identity"] != identity:
            return None
        return _stored_variant(archive, target, compiler)


def _save(
    path: Path,
    facts: Mapping[str, object],
    members: Mapping[str, bytes],
    digests: Mapping[str, str],
    code: Iterable[CodeVariant],
) -> None:
    every: dict[str, bytes | memoryview] = dict(members)
    isas = {}
    for variant in code:
        every |= variant_members(variant)
        isas[variant.target] = variant_entry(variant)
    manifest = {"format": FORMAT, **facts, "isas": isas}
    with atomic_writer(path) as stream:
        write_archive(stream, manifest, every, map(weights_member, isas), digests)


def _stored_variant(archive: Archive, target: str, compiler: str) -> CodeVariant | None:
    entry = archive.manifest["isas"].get(target)
    if entry is None or entry["compiler"] != compiler:
        return None
    return stored_variant(archive, target, entry)


def _tail_members(tail: HostedTail | None) -> dict[str, bytes]:
    if tail is None:
        return {}
    return {_TAIL: json.dumps(tail.to_plain(), indent=1).encode(), _TAIL_MODEL: decode(tail.model)}


def _constant(index: int) -> str:
    return f"constants/{index}.npy"
