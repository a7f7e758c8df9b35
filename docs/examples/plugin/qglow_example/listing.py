"""A target of another package: it writes programs as text, for a machine that something else programs.

`qglow compile MODEL --isa listing` finds it by the entry point
`listing = qglow_example.listing:TARGET` of the group `qglow.targets`; see docs/how-to/add-a-target.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from qglow.core.files import write_atomically
from qglow.instructions.plan import MemoryPlan, plan_memory
from qglow.instructions.program import Program
from qglow.instructions.text import print_program
from qglow.kernels.selection.choice import NO_CHOICES, Choices
from qglow.lowering.backend import Backend
from qglow.targets.protocol import BundleTarget, TargetDescription

NAME = "listing"


class ListingTarget:
    """Satisfies `BundleTarget`: programs are planned as they are, and written as a listing."""

    machine: None = None
    forms: Mapping[str, Callable[[Program], str]] = {}
    backend = Backend(NAME)
    description = TargetDescription(NAME, "a listing of the planned program")

    def refusal(self) -> str | None:
        """Say why this host cannot run it: a listing is nothing that runs."""
        return "a listing is for people"

    def choices(self) -> Choices:
        """Return no measured choices, because there are no kernels."""
        return NO_CHOICES

    def select(self, program: Program, choices: Choices = NO_CHOICES, *, epilogues: bool = True) -> None:
        """Leave the program as it is."""

    def plan(self, program: Program, *, reuse: bool = True) -> MemoryPlan:
        """Place activations in one arena."""
        return plan_memory(program, reuse=reuse)

    def write(self, program: Program, folder: Path) -> None:
        """Write the only file of the bundle."""
        write_atomically(folder / "program.txt", print_program(program))


TARGET = ListingTarget()


if __name__ == "__main__":
    print(f"{NAME} is a target that writes bundles: {isinstance(TARGET, BundleTarget)}")
