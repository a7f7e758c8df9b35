"""The kernel of host calls, which have no code of their own: entries call Python for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.errors import InternalError
from qglow.instructions.ops.hosted import HostCall
from qglow.instructions.program import Instruction
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.target import VectorTarget

CALL_CYCLES = 50_000.0
"""Cycles of a call of Python and onnxruntime (measured: 15 microseconds), whatever the nodes compute."""


@kernel
@dataclass(frozen=True)
class Hosted(Kernel):
    """A call of the host."""

    name: ClassVar[str] = "host"

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cost of the call alone: nobody knows what the nodes cost."""
        return CALL_CYCLES

    def emit(self, site: Site) -> None:
        """Raise InternalError: entries make this call themselves."""
        raise InternalError(f"{site.instruction.name} runs in the host and has no code")


@candidates_for(HostCall)
def hosted_candidates(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """The only way to execute a host call."""
    return [Hosted()]
