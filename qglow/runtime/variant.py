"""What was compiled for one instruction set, and the members of an archive that hold it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from qglow.codegen.cache import compiler_version
from qglow.codegen.compiler import CompiledProgram
from qglow.core.types import Array
from qglow.instructions.program import Program
from qglow.instructions.text import parse_program, print_program
from qglow.kernels.isa import isa_by_name
from qglow.runtime.archive import Archive
from qglow.runtime.signature import Signature


@dataclass(frozen=True)
class CodeVariant:
    """Code for one instruction set. `listing` gives the program as it was planned for it."""

    compiled: CompiledProgram
    signature: Signature
    compiler: str
    listing: Callable[[], str]

    @staticmethod
    def of(program: Program, compiled: CompiledProgram) -> CodeVariant:
        """What has just been compiled of a planned program."""
        return CodeVariant(
            compiled, Signature.of(program), compiler_version(), lambda: print_program(program)
        )

    def program(self, constants: Mapping[str, Array]) -> Program:
        """The planned program, with these constants."""
        return parse_program(self.listing(), constants)


def variant_entry(variant: CodeVariant) -> dict[str, object]:
    """What a manifest says of it."""
    compiled = variant.compiled
    return {
        "entry": compiled.entry,
        "team_entry": compiled.team_entry,
        "objects": len(compiled.objects),
        "compiler": variant.compiler,
        "arena_size": compiled.arena_size,
        "placeholders": list(compiled.placeholders),
        "signature": variant.signature.to_plain(),
    }


def variant_members(variant: CodeVariant) -> dict[str, bytes | memoryview]:
    """Its members by name."""
    compiled = variant.compiled
    isa = compiled.isa.name
    return {
        **{_object_member(isa, number): content for number, content in enumerate(compiled.objects)},
        weights_member(isa): compiled.weights.data,
        f"{isa}/program.txt": variant.listing().encode(),
    }


def _object_member(isa: str, number: int) -> str:
    return f"{isa}/code{number}.o"


def weights_member(isa: str) -> str:
    """The name of the member with the weights, which begins at the edge of a page."""
    return f"{isa}/weights.bin"


def stored_variant(archive: Archive, isa: str, entry: Mapping[str, Any]) -> CodeVariant:
    """What `variant_entry` and `variant_members` describe; weights stay where they are in the file.

    Raises ArtefactError, KeyError, TypeError, ValueError, TextError, UsageError for what is damaged.
    """
    compiled = CompiledProgram(
        isa_by_name(isa),
        _objects(archive, isa, entry["objects"]),
        np.frombuffer(archive.read(weights_member(isa)), np.uint8),
        int(entry["arena_size"]),
        tuple(str(name) for name in entry["placeholders"]),
        str(entry["entry"]),
        None if entry["team_entry"] is None else str(entry["team_entry"]),
    )

    def listing() -> str:
        return bytes(archive.read(f"{isa}/program.txt")).decode()

    return CodeVariant(compiled, Signature.from_plain(entry["signature"]), str(entry["compiler"]), listing)


def _objects(archive: Archive, isa: str, count: object) -> tuple[bytes, ...]:
    """The object files, as many as lie there. Raises as `Archive.read` does."""
    there = {name for name in archive.manifest["sha256"] if name.startswith(f"{isa}/code")}
    if type(count) is not int or count != len(there) or not there:
        raise ValueError(f"the code for {isa} is in {len(there)} object files, and should be in {count!r}")
    return tuple(bytes(archive.read(_object_member(isa, number))) for number in range(count))
