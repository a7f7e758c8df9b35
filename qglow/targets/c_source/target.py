"""Target that writes a program as plain C99 with the bits of all others, for compilers that are not LLVM."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from qglow.instructions.program import Program
from qglow.lowering.backend import Backend
from qglow.targets.kernelless import KernellessTarget
from qglow.targets.protocol import TargetDescription

NAME = "c"


class SourceTarget(KernellessTarget):
    """Satisfies `BundleTarget` without kernels: every instruction becomes a function in C."""

    backend = Backend(NAME, joins_attention=False)
    description = TargetDescription(NAME, "plain C99 sources, for any compiler and processor")

    def refusal(self) -> str | None:
        """Reason why Python does not call it: a compiler has to come between."""
        return "it is source code; load_bundle compiles a bundle of it"

    def write(self, program: Program, folder: Path) -> None:
        """Write a planned program as C sources. Raises UnsupportedError, InputFileError."""
        from qglow.csource.bundle import write_source_bundle  # a program that runs here does without

        write_source_bundle(program, NAME, folder)


TARGETS: Mapping[str, SourceTarget] = {NAME: SourceTarget()}
