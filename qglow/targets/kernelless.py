"""Base of targets without kernels, which take a program as lowering left it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from qglow.instructions.plan import MemoryPlan, plan_memory
from qglow.instructions.program import Program
from qglow.kernels.selection.choice import NO_CHOICES, Choices


class KernellessTarget:
    """Parts of `Target` of a target whose instructions are executed one by one, by code written once."""

    machine: None = None
    forms: Mapping[str, Callable[[Program], str]] = {}

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
