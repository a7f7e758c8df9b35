"""Code that a target made of a program, and the members of an archive that hold it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from qglow.core.types import Array
from qglow.instructions.program import Program
from qglow.instructions.text import parse_program, print_program
from qglow.runtime.archive import Archive
from qglow.runtime.hosting import HostedNode, hosted_nodes
from qglow.runtime.signature import Signature


@dataclass(frozen=True)
class CodeVariant:
    """Code that a target made of a planned program, as data that a file can hold.

    target: name of the target. compiler: version of its compiler; another one compiles anew.
    signature: of the program. arena_size: bytes of activations. objects: files of object code, none
    where the target runs the planned program itself. weights: uint8, packed for this code.
    placeholders: names in the order in which `entry` takes their addresses. team_entry: the entry for
    threads that share a call, None if the program is too small for it. listing: gives the planned
    program as text. hosted: the nodes that Python executes.
    """

    target: str
    compiler: str
    signature: Signature
    arena_size: int
    listing: Callable[[], str] = field(repr=False)
    objects: tuple[bytes, ...] = field(default=(), repr=False)
    weights: Array = field(default_factory=lambda: np.zeros(0, np.uint8), repr=False)
    placeholders: tuple[str, ...] = ()
    entry: str = ""
    team_entry: str | None = None
    hosted: tuple[HostedNode, ...] = ()

    @staticmethod
    def of(program: Program, target: str, compiler: str) -> CodeVariant:
        """A variant without object code of a program whose memory is planned."""
        signature, size = Signature.of(program), program.arena_size or 0
        hosted = hosted_nodes(program)
        return CodeVariant(target, compiler, signature, size, lambda: print_program(program), hosted=hosted)

    def program(self, constants: Mapping[str, Array]) -> Program:
        """The planned program, with these constants."""
        return parse_program(self.listing(), constants)


def variant_entry(variant: CodeVariant) -> dict[str, object]:
    """Entry of a code variant in a manifest."""
    return {
        "entry": variant.entry,
        "team_entry": variant.team_entry,
        "objects": len(variant.objects),
        "compiler": variant.compiler,
        "arena_size": variant.arena_size,
        "placeholders": list(variant.placeholders),
        "signature": variant.signature.to_plain(),
        "hosted": [node.to_plain() for node in variant.hosted],
    }


def variant_members(
    variant: CodeVariant, folder: str | None = None, weights: bool = True
) -> dict[str, bytes | memoryview]:
    """Members of a code variant in an archive, by name.

    folder: where they lie (default: named like the target). weights: whether they are among them.
    """
    folder = folder or variant.target
    return {
        **{_object_member(folder, number): content for number, content in enumerate(variant.objects)},
        **({weights_member(folder): variant.weights.data} if weights else {}),
        f"{folder}/program.txt": variant.listing().encode(),
    }


def _object_member(folder: str, number: int) -> str:
    return f"{folder}/code{number}.o"


def weights_member(target: str) -> str:
    """The name of the member with the weights, which begins at the edge of a page."""
    return f"{target}/weights.bin"


def stored_variant(
    archive: Archive,
    target: str,
    entry: Mapping[str, Any],
    folder: str | None = None,
    weights: Array | None = None,
) -> CodeVariant:
    """Read what `variant_entry` and `variant_members` describe; weights stay where they are in the file.

    folder, weights: where members lie, and the weights, where they are not in this folder. Raises
    ArtefactError, KeyError, TypeError, ValueError, TextError for damaged members.
    """
    place = folder or target

    def listing() -> str:
        return bytes(archive.read(f"{place}/program.txt")).decode()

    return CodeVariant(
        target,
        str(entry["compiler"]),
        Signature.from_plain(entry["signature"]),
        int(entry["arena_size"]),
        listing,
        _objects(archive, place, entry["objects"]),
        np.frombuffer(archive.read(weights_member(place)), np.uint8) if weights is None else weights,
        tuple(str(name) for name in entry["placeholders"]),
        str(entry["entry"]),
        None if entry["team_entry"] is None else str(entry["team_entry"]),
        tuple(HostedNode.from_plain(node) for node in entry.get("hosted", [])),
    )


def _objects(archive: Archive, folder: str, count: object) -> tuple[bytes, ...]:
    """The object files; ValueError if their number is not `count`. Raises as `Archive.read` does."""
    there = {name for name in archive.manifest["sha256"] if name.startswith(f"{folder}/code")}
    if type(count) is not int or count != len(there) or not there:
        raise ValueError(f"the code for {folder} is in {len(there)} object files, and should be in {count!r}")
    return tuple(bytes(archive.read(_object_member(folder, number))) for number in range(count))
