"""A model.qglow with several programs of one model, which hold their constants once.

It is an archive as `runtime.artefact` describes it, of a format of its own, with these members:

    manifest.json               as there, "programs" with the constants of each, and "facts" about all
    programs/<i>.txt            instruction programs before kernels are selected
    constants/<i>.npy           their constants, each once
    tables/<i>.npy              arrays that the facts speak of
    <isa>/weights.bin           constants packed for the kernels of all programs
    <isa>/<i>/code<j>.o         object code of a program
    <isa>/<i>/program.txt       the program as planned

What the facts say is the business of who writes and reads them. Compiled code is cached as a collection
without programs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from qglow.core.errors import ArtefactError
from qglow.core.files import atomic_writer, sha256_hex
from qglow.core.reading import parse_json
from qglow.core.types import Array
from qglow.instructions.program import Program
from qglow.instructions.text import parse_program, print_program
from qglow.instructions.verifier import verify_program
from qglow.runtime.archive import Archive, write_archive
from qglow.runtime.members import from_npy, identity_of, opened, refusing, to_npy
from qglow.runtime.variant import CodeVariant, stored_variant, variant_entry, variant_members, weights_member

FORMAT = 6
_FACTS = "facts.json"


@dataclass(frozen=True)
class CollectedCode:
    """Code of all programs for one target, by one compiler, and the packed constants that they share."""

    target: str
    compiler: str
    programs: Sequence[CodeVariant]
    weights: Array = field(repr=False)


@dataclass(frozen=True)
class StoredCollection:
    """Programs before kernel selection as the members of an archive.

    constants: for each program its constants by name, as numbers of members.
    """

    name: str
    constants: Sequence[Mapping[str, int]]
    members: Mapping[str, bytes]

    @staticmethod
    def of(
        programs: Sequence[Program], facts: Mapping[str, Any], tables: Sequence[Array]
    ) -> StoredCollection:
        """Print the programs, and constants that several have alike once."""
        members = {_FACTS: json.dumps(facts, sort_keys=True).encode()}
        numbers: dict[str, int] = {}
        constants: list[dict[str, int]] = []
        for index, program in enumerate(programs):
            members[_program(index)] = print_program(program).encode()
            own = {}
            for buffer in program.all_constants():
                content = to_npy(np.asarray(buffer.data))
                number = numbers.setdefault(sha256_hex(content), len(numbers))
                members.setdefault(_constant(number), content)
                own[buffer.name] = number
            constants.append(own)
        members |= {_table(index): to_npy(table) for index, table in enumerate(tables)}
        return StoredCollection(programs[-1].name, constants, members)

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """SHA-256 of the members by name."""
        return {name: sha256_hex(data) for name, data in self.members.items()}

    @cached_property
    def identity(self) -> str:
        """The digest that a collection of these programs has as its identity."""
        return identity_of(self.digests)


class Collection:
    """A file of several programs that is mapped into memory. Members are checked when they are read.

    All methods raise ArtefactError for damaged members.
    """

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        manifest = archive.manifest
        self._constants = [{str(name): int(at) for name, at in own.items()} for own in manifest["programs"]]
        self._names = sorted(name for name in manifest["sha256"] if not _is_code(name))
        needed = [_FACTS, *map(_program, range(len(self._constants)))]
        needed += [_constant(number) for own in self._constants for number in own.values()]
        if not self._constants or not set(needed) <= set(self._names):
            raise ValueError("it lacks a program, or a constant of one")
        self.identity = identity_of({name: str(manifest["sha256"][name]) for name in self._names})
        """A digest of the programs, constants and facts, whatever code lies beside them."""

    @property
    def count(self) -> int:
        """Number of programs."""
        return len(self._constants)

    def check(self) -> None:
        """Check programs, constants and facts against the identity."""
        with refusing(self._archive.path):
            self._archive.check(self._names)

    def facts(self) -> Any:
        """Plain data that the writer left about the programs."""
        with refusing(self._archive.path):
            return parse_json(bytes(self._archive.read(_FACTS)))

    def table(self, number: int) -> Array:
        """An array that the facts speak of."""
        with refusing(self._archive.path):
            return from_npy(self._archive.read(_table(number)))

    def programs(self) -> list[Program]:
        """The programs before kernel selection, verified; they hold equal constants once."""
        with refusing(self._archive.path):
            known: dict[int, Array] = {}
            programs = []
            for index in range(len(self._constants)):
                text = bytes(self._archive.read(_program(index))).decode()
                program = parse_program(text, self._data(index, known))
                verify_program(program, f"{_program(index)} in {self._archive.path}")
                programs.append(program)
        return programs

    def constants(self, index: int) -> dict[str, Array]:
        """The data of the constants of a program by name."""
        with refusing(self._archive.path):
            return self._data(index, {})

    def _data(self, index: int, known: dict[int, Array]) -> dict[str, Array]:
        own = self._constants[index]
        for number in own.values():
            if number not in known:
                known[number] = from_npy(self._archive.read(_constant(number)))
        return {name: known[number] for name, number in own.items()}

    def code(self, target: str, compiler: str) -> CollectedCode | None:
        """Code in the archive for a target, by this version of its compiler; None if there is none."""
        with refusing(self._archive.path):
            return _stored_code(self._archive, len(self._constants), target, compiler)


def open_collection(archive: Archive) -> Collection:
    """The programs of an archive of this format. Raises ArtefactError."""
    with refusing(archive.path):
        return Collection(archive)


def save_collection(path: Path, stored: StoredCollection, code: Sequence[CollectedCode] = ()) -> None:
    """Write programs atomically, and their code for some targets."""
    facts = {"name": stored.name, "programs": [dict(own) for own in stored.constants]}
    _save(path, facts, stored.members, stored.digests, code)


def save_collected_code(path: Path, identity: str, code: CollectedCode) -> None:
    """Write the code of the programs with this identity, atomically."""
    _save(path, {"identity": identity}, {}, {}, [code])


def load_collected_code(
    path: Path, identity: str, count: int, target: str, compiler: str
) -> CollectedCode | None:
    """Load what `save_collected_code` wrote of `count` programs; None for others, or another compiler.

    Raises ArtefactError.
    """
    with refusing(path):
        archive = opened(path, (FORMAT,))
        if archive.manifest["identity"] != identity:
            return None
        return _stored_code(archive, count, target, compiler)


def _save(
    path: Path,
    facts: Mapping[str, object],
    members: Mapping[str, bytes],
    digests: Mapping[str, str],
    code: Sequence[CollectedCode],
) -> None:
    every: dict[str, bytes | memoryview] = dict(members)
    isas = {}
    for one in sorted(code, key=lambda c: c.target):
        every[weights_member(one.target)] = one.weights.data
        for index, variant in enumerate(one.programs):
            every |= variant_members(variant, f"{one.target}/{index}", weights=False)
        entries = [variant_entry(variant) for variant in one.programs]
        isas[one.target] = {"compiler": one.compiler, "programs": entries}
    with atomic_writer(path) as stream:
        write_archive(
            stream, {"format": FORMAT, **facts, "isas": isas}, every, map(weights_member, isas), digests
        )


def _stored_code(archive: Archive, count: int, target: str, compiler: str) -> CollectedCode | None:
    entry = archive.manifest["isas"].get(target)
    if entry is None or entry["compiler"] != compiler:
        return None
    if len(entry["programs"]) != count:
        raise ArtefactError(
            f"{archive.path} is damaged: code of {len(entry['programs'])} programs, not {count}"
        )
    weights = np.frombuffer(archive.read(weights_member(target)), np.uint8)
    variants = [
        stored_variant(archive, target, plain, f"{target}/{index}", weights)
        for index, plain in enumerate(entry["programs"])
    ]
    return CollectedCode(target, compiler, variants, weights)


def _is_code(name: str) -> bool:
    return name != _FACTS and not name.startswith(("programs/", "constants/", "tables/"))


def _program(index: int) -> str:
    return f"programs/{index}.txt"


def _constant(number: int) -> str:
    return f"constants/{number}.npy"


def _table(number: int) -> str:
    return f"tables/{number}.npy"
