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
        "compiler": variant.compiler,
        "arena_size": compiled.arena_size,
        "placeholders": list(compiled.placeholders),
        "signature": variant.signature.to_plain(),
    }


def variant_members(variant: CodeVariant) -> dict[str, bytes | memoryview]:
    """Its members by name."""
    isa = variant.compiled.isa.name
    return {
        f"{isa}/code.o": variant.compiled.object_code,
        weights_member(isa): variant.compiled.weights.data,
        f"{isa}/program.txt": variant.listing().encode(),
    }


def weights_member(isa: str) -> str:
    """The name of the member with the weights, which begins at the edge of a page."""
    return f"{isa}/weights.bin"


def stored_variant(archive: Archive, isa: str, entry: Mapping[str, Any]) -> CodeVariant:
    """What `variant_entry` and `variant_members` describe; weights stay where they are in the file.

    Raises ArtefactError, KeyError, TypeError, ValueError, TextError, UsageError for what is damaged.
    """
    compiled = CompiledProgram(
        isa_by_name(isa),
        bytes(archive.read(f"{isa}/code.o")),
        np.frombuffer(archive.read(weights_member(isa)), np.uint8),
        int(entry["arena_size"]),
        tuple(str(name) for name in entry["placeholders"]),
        str(entry["entry"]),
        None if entry["team_entry"] is None else str(entry["team_entry"]),
    )

    def listing() -> str:
        return bytes(archive.read(f"{isa}/program.txt")).decode()

    return CodeVariant(compiled, Signature.from_plain(entry["signature"]), str(entry["compiler"]), listing)
