"""Target whose programs the numpy interpreter runs, in the arena as planned, on any host."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from qglow.codegen.cache import compiler_version
from qglow.instructions.program import Program
from qglow.lowering.backend import Backend
from qglow.runtime.executable import Executable
from qglow.runtime.variant import CodeVariant
from qglow.targets.kernelless import KernellessTarget
from qglow.targets.protocol import Emission, TargetDescription
from qglow.targets.reference.interpreted import InterpretedProgram
from qglow.targets.reference.stepped import SteppedInterpreter

NAME = "reference"


class ReferenceTarget(KernellessTarget):
    """Satisfies `SteppedTarget` without kernels and without code: the planned program is what runs."""

    backend = Backend(NAME)
    description = TargetDescription(NAME, "the interpreter in numpy: slow, on any host")

    def refusal(self) -> str | None:
        """None: Python is everywhere."""
        return None

    def version(self) -> str:
        """The version of qglow's compiler, which made the plan."""
        return compiler_version()

    def emit(self, program: Program, emission: Emission) -> CodeVariant:
        """The planned program, without object code."""
        return CodeVariant.of(program, NAME, self.version())

    def load(self, code: CodeVariant, threads: int, planned: Callable[[], Program]) -> Executable:
        """The planned program in an interpreter, which runs on the caller's thread alone."""
        program = planned()
        return Executable(code.signature, InterpretedProgram(program, NAME), lambda: program)

    def stepped(self, program: Program, *, cache: bool = False) -> SteppedInterpreter:
        """Load a planned program that stops after every instruction."""
        return SteppedInterpreter(program)


TARGETS: Mapping[str, ReferenceTarget] = {NAME: ReferenceTarget()}
