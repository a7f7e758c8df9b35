"""Target that writes a program as plain C99 with the bits of all others, for compilers that are not LLVM."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from qglow.instructions.plan import MemoryPlan, plan_memory
from qglow.instructions.program import Program
from qglow.kernels.selection.choice import NO_CHOICES, Choices
from qglow.lowering.backend import Backend
from qglow.targets.protocol import TargetDescription

NAME = "c"


class SourceTarget:
    """Satisfies `BundleTarget` without kernels: every instruction becomes a function in C."""

    machine: None = None
    forms: Mapping[str, Callable[[Program], str]] = {}
    backend = Backend(NAME, joins_attention=False)
    description = TargetDescription(NAME, "plain C99 sources, for any compiler and processor")

    def refusal(self) -> str | None:
        """Reason why Python does not call it: a compiler has to come between."""
        return "it is source code; load_bundle compiles a bundle of it"

    def choices(self) -> Choices:
        """Return none: without kernels there is nothing to choose."""
        return NO_CHOICES

    def select(
        self,
        program: Program,
        choices: Choices = NO_CHOICES,
        *,
        epilogues: bool = True,
        like: Sequence[Program] = (),
    ) -> None:
        """Leave the program as it is: every instruction is executed alone."""

    def plan(self, program: Program, *, reuse: bool = True) -> MemoryPlan:
        """Place activations in one arena, in place."""
        return plan_memory(program, reuse=reuse)

    def write(self, program: Program, folder: Path) -> None:
        """Write a planned program as C sources. Raises UnsupportedError, InputFileError."""
        from qglow.csource.bundle import write_source_bundle  # a program that runs here does without

        write_source_bundle(program, NAME, folder)


TARGETS: Mapping[str, SourceTarget] = {NAME: SourceTarget()}
