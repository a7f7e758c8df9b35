"""Target that writes a program as plain C99 with the bits of all others, for compilers that are not LLVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

from qglow.instructions.program import Program
from qglow.lowering.backend import Backend
from qglow.targets.kernelless import KernellessTarget
from qglow.targets.protocol import TargetDescription

NAME = "c"


@dataclass(frozen=True)
class SourceTarget(KernellessTarget):
    """Satisfies `StreamTarget` without kernels: every instruction becomes a function in C.

    states: inputs that bundles keep from run to run, each with the output that the next run reads there.
    """

    states: tuple[tuple[str, str], ...] = ()
    backend: ClassVar[Backend] = Backend(NAME, joins=False)
    description: ClassVar[TargetDescription] = TargetDescription(
        NAME, "plain C99 sources, for any compiler and processor"
    )

    def refusal(self) -> str | None:
        """Reason why Python does not call it: a compiler has to come between."""
        return "it is source code; load_bundle compiles a bundle of it"

    def keeping(self, states: Mapping[str, str]) -> Self:
        """The same target with bundles that keep these states."""
        return replace(self, states=tuple(states.items()))

    def arena_bytes(self, program: Program) -> int:
        """Bytes of the arena that a bundle of a planned program needs. Raises UsageError."""
        from qglow.bundles.interface import arena_bytes

        return arena_bytes(program, 0, dict(self.states))

    def write(self, program: Program, folder: Path) -> None:
        """Write a planned program as C sources. Raises UnsupportedError, UsageError, InputFileError."""
        from qglow.csource.bundle import write_source_bundle  # a program that runs here does without

        write_source_bundle(program, NAME, folder, dict(self.states))


TARGETS: Mapping[str, SourceTarget] = {NAME: SourceTarget()}
