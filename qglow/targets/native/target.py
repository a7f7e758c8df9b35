"""Target for a processor that LLVM generates code for: kernels, object code, just-in-time loading."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from qglow.codegen.cache import compiler_version
from qglow.codegen.compiler import (
    CompiledProgram,
    compile_program,
    default_cache,
    default_kernels,
    emit_assembly,
    emit_llvm_text,
)
from qglow.codegen.host import lacking
from qglow.codegen.jit import load
from qglow.codegen.kernel_choices import saved_choices
from qglow.codegen.peak import Peak, measure_peak
from qglow.instructions.plan import MemoryPlan, plan_memory
from qglow.instructions.program import Program
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.selection.choice import NO_CHOICES, Choices
from qglow.kernels.selection.select import select_kernels
from qglow.lowering.backend import Backend
from qglow.runtime.executable import Executable
from qglow.runtime.native import NativeProgram
from qglow.runtime.variant import CodeVariant
from qglow.targets.native.stepped import SteppedCode
from qglow.targets.native.timed import TimedCode
from qglow.targets.protocol import Emission, TargetDescription


@dataclass(frozen=True)
class NativeTarget:
    """Satisfies `TimedTarget` and `SteppedTarget`.

    machine: description of the processor. summary: a line that describes it to users.
    """

    machine: VectorTarget
    summary: str

    @property
    def description(self) -> TargetDescription:
        """Name, processor and features."""
        machine = self.machine
        features = tuple(sorted(feature.lstrip("+") for feature in machine.features.split(",") if feature))
        return TargetDescription(machine.name, self.summary, machine.cpu, features)

    @property
    def backend(self) -> Backend:
        """Backend for lowering that decomposes every operator with a decomposition."""
        return Backend(self.machine.name)

    @property
    def forms(self) -> Mapping[str, Callable[[Program], str]]:
        """LLVM text before LLVM's own optimisation, and assembly."""
        machine = self.machine
        return {
            "llvm": lambda program: emit_llvm_text(program, machine),
            "asm": lambda program: emit_assembly(program, machine),
        }

    def refusal(self) -> str | None:
        """Reason why the host cannot run the code: another processor, or features that it lacks."""
        return lacking(self.machine)

    def choices(self) -> Choices:
        """Kernels that were measured to be best on this processor, from the user's cache."""
        return saved_choices(self.machine)

    def select(
        self,
        program: Program,
        choices: Choices = NO_CHOICES,
        *,
        epilogues: bool = True,
        like: Program | None = None,
    ) -> None:
        """Write the best kernel on every instruction, in place. Raises UnsupportedError."""
        select_kernels(program, self.machine, choices, epilogues, like)

    def plan(self, program: Program, *, reuse: bool = True) -> MemoryPlan:
        """Place activations in one arena, in place."""
        return plan_memory(program, reuse=reuse)

    def version(self) -> str:
        """The version of qglow's compiler and of LLVM."""
        return compiler_version()

    def emit(self, program: Program, emission: Emission) -> CodeVariant:
        """Object code of a planned program, also for another host. Raises CodegenError."""
        cache = default_cache() if emission.cache and emission.programs else None
        kernels = default_kernels(self.machine) if emission.cache else None
        compiled = compile_program(
            program,
            self.machine,
            cache,
            processes=emission.processes,
            kernels=kernels,
            blob=emission.blob,
        )
        return replace(
            CodeVariant.of(program, self.machine.name, self.version()),
            objects=compiled.objects,
            weights=compiled.weights,
            placeholders=compiled.placeholders,
            entry=compiled.entry,
            team_entry=compiled.team_entry,
        )

    def load(self, code: CodeVariant, threads: int, planned: Callable[[], Program]) -> Executable:
        """Link code into this process.

        Raises UsageError if the host cannot run it, CodegenError if it does not link.
        """
        compiled = CompiledProgram(
            self.machine,
            code.objects,
            code.weights,
            code.arena_size,
            code.placeholders,
            code.entry,
            code.team_entry,
        )
        loaded = NativeProgram(compiled, load(compiled), threads, code.signature.state, code.hosted)
        return Executable(code.signature, loaded, planned)

    def timed(self, program: Program) -> TimedCode:
        """Load a planned program whose instructions are timed, on one thread. Raises UsageError as `load`."""
        return TimedCode(program, self.machine)

    def stepped(self, program: Program, *, cache: bool = False) -> SteppedCode:
        """Load a planned program that stops after every kernel. Raises UsageError as `load`."""
        return SteppedCode(program, self.machine, default_kernels(self.machine) if cache else None)

    def peak(self, is_float: bool = False) -> Peak:
        """Measure the most products of one thread, in about 20 milliseconds. Raises UsageError as `load`."""
        return measure_peak(self.machine, is_float)
