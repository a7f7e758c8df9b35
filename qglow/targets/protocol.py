"""Protocol of targets: select kernels, plan memory, emit code, and load or write it.

A target implements the protocols of what it can do. `Target` is common to all, including those whose code
the host cannot run. A `RunningTarget` gives executables to this process, a `TimedTarget` also measures
instructions there, a `SteppedTarget` stops after each kernel, and a `BundleTarget` writes files for a
machine without Python, a `ThriftyTarget` also for one with little memory. `targets.capabilities` raises an
error that says what a target lacks.

A program goes through a target in this order, each step working on the result of the one before:

    lower(graph, target.backend)      what lowering keeps whole is the target's choice
    target.select(program)            kernels, padding and scratch; in place
    target.plan(program)              offsets of activations; in place
    target.emit(program, emission)    code as data, which files can hold
    target.load(code, ...)            an executable
    target.write(program, folder)     or files: what `emit` and `load` are to a bundle

Programs in artefacts are lowered for no target in particular, so that every target takes them; what is
special to one (no float unit, no fused multiply-add) is done in `select`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from qglow.codegen.peak import Peak
from qglow.codegen.weights import WeightBlob
from qglow.core.types import Array
from qglow.instructions.plan import MemoryPlan
from qglow.instructions.program import Instruction, Program
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.selection.choice import NO_CHOICES, Choices
from qglow.lowering.backend import Backend
from qglow.runtime.executable import Executable
from qglow.runtime.variant import CodeVariant


@dataclass(frozen=True)
class TargetDescription:
    """Description of a target for users.

    name: what `isa=` takes. summary: a line for people. cpu: the processor by LLVM's name, empty
    where code is for none. features: what code uses beyond it, by LLVM's names.
    """

    name: str
    summary: str
    cpu: str = ""
    features: tuple[str, ...] = ()


@dataclass(frozen=True)
class Emission:
    """Settings of code emission; the code depends on none of them but `blob`.

    cache: whether to take code of single kernels from the user's cache, and add to it. programs: the same for
    the code of whole programs. processes: the most processes that generate code. blob: constants of several
    programs, to which those of this one are added; the code finds them there, and comes without weights.
    """

    cache: bool = True
    programs: bool = True
    processes: int = 1
    blob: WeightBlob | None = None


@runtime_checkable
class Target(Protocol):
    """Interface of every target, whether or not the host runs its code."""

    @property
    def description(self) -> TargetDescription:
        """Name, processor and features."""

    @property
    def backend(self) -> Backend:
        """Operators that lowering leaves whole."""

    @property
    def machine(self) -> VectorTarget | None:
        """The description that kernels are selected and costed for; None for a target without kernels."""

    @property
    def forms(self) -> Mapping[str, Callable[[Program], str]]:
        """Texts of a planned program in the target's own languages, such as "llvm" and "asm", by name."""

    def refusal(self) -> str | None:
        """Reason why this host cannot run the target's code, in a few words for an error; None if it can."""

    def choices(self) -> Choices:
        """Kernels that were measured to be best on this machine; empty where none were."""

    def select(
        self,
        program: Program,
        choices: Choices = NO_CHOICES,
        *,
        epilogues: bool = True,
        like: Sequence[Program] = (),
    ) -> None:
        """Choose how every instruction is executed, in place.

        `choices` are preferred to estimates. Without `epilogues` every instruction stores its result. like:
        selected programs of the same model, whose packed constants this one is to share, those of the first
        before others. Raises UnsupportedError for what the target cannot execute.
        """

    def plan(self, program: Program, *, reuse: bool = True) -> MemoryPlan:
        """Place activations in one arena, in place; without `reuse` each has memory of its own."""


@runtime_checkable
class RunningTarget(Target, Protocol):
    """A target whose programs Python calls."""

    def version(self) -> str:
        """Version of all that determines a program's code. Code of another version is not run."""

    def emit(self, program: Program, emission: Emission) -> CodeVariant:
        """Generate code of a planned program, possibly for another host, and in other processes.

        Raises CodegenError.
        """

    def load(self, code: CodeVariant, threads: int, planned: Callable[[], Program]) -> Executable:
        """Make code ready to run. `planned` gives the planned program with its constants.

        threads: the most that share a call. Raises UsageError if the host cannot run the code.
        """


@dataclass(frozen=True)
class Step:
    """Memory after one step of a program: a kernel that executes one instruction or several.

    instructions: those of the step, in order. results: logical copies of the buffers that the step wrote to
    memory, by name; of a buffer that it wrote in part, that part. Values in registers are not included.
    """

    instructions: tuple[Instruction, ...]
    results: Mapping[str, Array]


class SteppedProgram(Protocol):
    """A program in memory that runs kernel by kernel, on one thread."""

    def run(self, inputs: Mapping[str, Array]) -> Iterator[Step]:
        """Run the program on logical arrays by name of its inputs; state begins as zeros."""

    def run_changed(
        self,
        inputs: Mapping[str, Array],
        changes: Mapping[str, Callable[[Array], None]],
        keep: bool = False,
    ) -> dict[str, Array]:
        """Run the program with changes to intermediate values; returns outputs by name.

        A change modifies the buffer of its name in place as soon as all of it is written. Equal changes do
        the same. The array that a change is given holds the elements of its buffer in any order of axes.
        Memory is planned without reuse, and names are keys of `liveness.whole_at`.

        keep: whether memory may be kept for more runs with this very mapping, whose arrays stay as they are:
        these then make anew only what other changes or constants make different.
        """

    def exchanged(self, constants: Mapping[str, Array], changed: Mapping[str, str]) -> SteppedProgram | None:
        """Return the program with other contents of some constants, which have the same shapes and types.

        changed: digests of those with other contents than now, by name. constants: contents by name, of all
        that the program itself need not hold and that kernels read beside one of these.
        None where it has to be made anew: the program has no constant of a changed name, or reads it more
        than once, or its code depends on the contents.
        """


@runtime_checkable
class SharingTarget(RunningTarget, Protocol):
    """A target whose programs of one model share packed constants among different instructions."""

    def share(self, programs: Sequence[Program]) -> None:
        """Let selected programs of one model read constants where others have them packed, in place.

        What they compute stays the same.
        """


@runtime_checkable
class SteppedTarget(RunningTarget, Protocol):
    """A target whose programs stop after every kernel, with the very code and memory plan of the whole."""

    def stepped(self, program: Program, *, cache: bool = False) -> SteppedProgram:
        """Load a planned program. `cache`: whether code may come from the user's cache, and go there.

        Raises UsageError as `load`.
        """


class TimedProgram(Protocol):
    """A program in memory whose instructions are timed when it runs."""

    def run(self, count: int) -> Array:
        """uint64[count, instructions]: ticks of the processor's counter in so many calls."""


@runtime_checkable
class TimedTarget(RunningTarget, Protocol):
    """A target that tells how long every instruction takes."""

    def timed(self, program: Program) -> TimedProgram:
        """Load a planned program for one thread, with random inputs. Raises UsageError as `load`."""

    def peak(self, is_float: bool = False) -> Peak:
        """Measure the most products of int8 or float32 of one thread here. Raises UsageError as `load`."""


@dataclass(frozen=True)
class Saving:
    """Ways in which kernels of a target take less memory, at the cost of time.

    borders: images lie without the border that kernels wish for. code: 0 for the fastest code, 1 for code
    that LLVM keeps small and weights of a byte, 2 for small tiles too, 3 for the smallest.
    """

    borders: bool = False
    code: int = 0


SMALLEST_CODE = 3
"""The largest number of `Saving.code`."""


@runtime_checkable
class BundleTarget(Target, Protocol):
    """A target that writes what another machine builds or runs, without qglow."""

    def write(self, program: Program, folder: Path) -> None:
        """Write a planned program into `folder`, which exists and is empty. Raises InputFileError."""


@runtime_checkable
class SizedTarget(BundleTarget, Protocol):
    """A target that tells before it writes how much memory a caller of the bundle has to give."""

    def arena_bytes(self, program: Program) -> int:
        """Bytes of the arena of a planned program as a bundle. Raises UsageError for states that it lacks."""


@runtime_checkable
class ThriftyTarget(BundleTarget, Protocol):
    """A target that can also make programs that take less memory."""

    def saving(self, saving: Saving) -> ThriftyTarget:
        """The same target, whose kernels save memory so. Not a bit of a result differs."""


@runtime_checkable
class PartedTarget(BundleTarget, Protocol):
    """A target whose bundles may be divided into parts, which threads of a caller run."""

    def in_parts(self, threads: int) -> PartedTarget:
        """The same target with bundles in parts for so many threads."""


@runtime_checkable
class StreamTarget(BundleTarget, Protocol):
    """A target whose bundles may keep states from run to run."""

    def keeping(self, states: Mapping[str, str]) -> StreamTarget:
        """The same target with bundles that keep these inputs as states, each with the output that the next
        run reads there."""
