"""Target whose code this host may run: object code, just-in-time loading, timing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from qglow.codegen.cache import compiler_version
from qglow.codegen.compiler import (
    CompiledProgram,
    compile_program,
    default_cache,
    default_kernels,
)
from qglow.codegen.jit import load
from qglow.codegen.kernel_choices import saved_choices
from qglow.codegen.peak import Peak, measure_peak
from qglow.instructions.program import Program
from qglow.kernels.selection.choice import Choices
from qglow.runtime.executable import Executable
from qglow.runtime.native import NativeProgram
from qglow.runtime.variant import CodeVariant
from qglow.targets.native.described import DescribedTarget
from qglow.targets.native.stepped import SteppedCode
from qglow.targets.native.timed import TimedCode
from qglow.targets.protocol import Emission


@dataclass(frozen=True)
class NativeTarget(DescribedTarget):
    """Satisfies `TimedTarget`, `SteppedTarget` and `BundleTarget`."""

    def choices(self) -> Choices:
        """Kernels that were measured to be best on this processor, from the user's cache."""
        return saved_choices(self.machine)

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
