"""The kernel of instructions with programs inside, which have no code of their own: entries emit them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.errors import InternalError
from qglow.instructions.ops.control import Branch, Loop
from qglow.instructions.program import Instruction, Program
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel, parse_kernel
from qglow.kernels.emit.target import VectorTarget


@kernel
@dataclass(frozen=True)
class Inside(Kernel):
    """Calls of the kernels of the programs inside."""

    name: ClassVar[str] = "inside"

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cost of the dearest body, in all rounds."""
        operation = instruction.operation
        rounds = operation.usual_rounds if isinstance(operation, Loop) else 1
        return rounds * max(_cost(body, target) for body in operation.bodies)

    def emit(self, site: Site) -> None:
        """Raise InternalError: entries emit these instructions themselves."""
        raise InternalError(f"{site.instruction.name} is emitted by the entries and has no function")


def _cost(body: Program, target: VectorTarget) -> float:
    work = [instruction for instruction in body.code if instruction.kernel]
    return sum(parse_kernel(one.kernel, target).cost(one, target) for one in work)


@candidates_for(Branch, Loop)
def structured_candidates(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """The only way to execute them."""
    return [Inside()]
