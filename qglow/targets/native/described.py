"""Target for a processor that LLVM generates code for, of which bundles are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from qglow.codegen.compiler import emit_assembly, emit_llvm_text
from qglow.codegen.host import lacking
from qglow.instructions.plan import MemoryPlan, plan_memory
from qglow.instructions.program import Program
from qglow.kernels.emit.target import CodeSize, NarrowWeights, VectorTarget
from qglow.kernels.selection.choice import NO_CHOICES, Choices
from qglow.kernels.selection.select import select_kernels
from qglow.kernels.selection.tables import read_packed_tables
from qglow.lowering.backend import Backend
from qglow.targets.protocol import Saving, TargetDescription

SMALL_TILES = 2
"""Most sums of a tile where code is to be small; every size of tile counts as much as the tile itself."""


@dataclass(frozen=True)
class DescribedTarget:
    """Satisfies `ThriftyTarget`.

    machine: description of the processor. summary: a line that describes it to users. threads: of a caller,
        for which bundles are divided into parts. states: inputs that bundles keep from run to run, each with
        the output that the next run reads there.
    """

    machine: VectorTarget
    summary: str
    threads: int = 1
    states: tuple[tuple[str, str], ...] = ()

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
        """Return none: nothing was measured on another machine."""
        return NO_CHOICES

    def select(
        self,
        program: Program,
        choices: Choices = NO_CHOICES,
        *,
        epilogues: bool = True,
        like: Sequence[Program] = (),
    ) -> None:
        """Write the best kernel on every instruction, in place. Raises UnsupportedError."""
        select_kernels(program, self.machine, choices, epilogues, like)

    def share(self, programs: Sequence[Program]) -> None:
        """Let look-ups read weights where products have them packed, in place."""
        read_packed_tables(programs, self.machine)

    def plan(self, program: Program, *, reuse: bool = True) -> MemoryPlan:
        """Place activations in one arena, in place."""
        return plan_memory(program, reuse=reuse)

    def in_parts(self, threads: int) -> Self:
        """The same processor with bundles in parts for so many threads."""
        return replace(self, threads=threads)

    def keeping(self, states: Mapping[str, str]) -> Self:
        """The same processor with bundles that keep these states."""
        return replace(self, states=tuple(states.items()))

    def saving(self, saving: Saving) -> Self:
        """The same processor with kernels that take less memory."""
        sizes = (CodeSize.FAST, CodeSize.SMALL, CodeSize.SMALL, CodeSize.SMALLEST)
        machine, model = self.machine, self.machine.model
        if saving.code > 1:
            model = replace(model, most_sums=min(model.most_sums, SMALL_TILES), variant_share=1.0)
        narrow = NarrowWeights.ALL if saving.code else machine.narrow
        size, padded = sizes[saving.code], not saving.borders
        small = replace(machine, model=model, size=size, narrow=narrow, pads_images=padded)
        return replace(self, machine=small)

    def arena_bytes(self, program: Program) -> int:
        """Bytes of the arena that a bundle of a planned program needs. Raises UsageError."""
        from qglow.bundles.interface import arena_bytes

        return arena_bytes(program, self.machine.activation_bias, dict(self.states))

    def write(self, program: Program, folder: Path) -> None:
        """Write a planned program as a C library. Raises UsageError, CodegenError, InputFileError."""
        from qglow.bundles.write import write_bundle  # a program that runs here does without

        write_bundle(program, self.machine, folder, self.threads, dict(self.states))
