"""Kernels chosen by measuring: every setting that may be better, in the place where it will run.

Each round compiles the program once, with the next setting of every distinct instruction, and lets
it take turns with the program of the estimate's kernels. So an instruction is measured with the caches
as the program leaves them, and one compilation serves all. When no kernel is left, the same is done for
groups that one kernel may execute with an epilogue, on the kernels that were found. What was measured is
written after every round, so that an interrupted search goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from qglow.codegen.kernel_choices import MeasuredKernels
from qglow.core.progress import Advance, Progress, start
from qglow.graph.graph import Graph
from qglow.instructions.program import Program
from qglow.kernels.selection.choice import Choices, alternatives, kernel_key
from qglow.kernels.selection.epilogue_choice import epilogue_groups, epilogue_key, usual_way, ways
from qglow.targets import capabilities
from qglow.targets.protocol import TimedTarget
from qglow.targets.registry import select_target
from qglow.toolchain.compilation import lower_graph
from qglow.toolchain.timing import Ticks, compare_instructions

Compare = Callable[[Program, Program, TimedTarget], tuple[Ticks, Ticks]]
"""Times of the instructions of two programs by name, in any unit."""


@dataclass(frozen=True)
class KernelTuning:
    """Result of a search over kernels.

    shapes: distinct instructions, and groups of them, that have a choice. kernels: how many were measured
    for them. changed: shapes that a measurement gives another kernel than the estimate. gain: the time of the
    whole program with the estimate's kernels over that with the choices, measured in turns; 1 without any.
    """

    shapes: int
    kernels: int
    changed: int
    gain: float


class KernelSearch:
    """A search for one program. `make` gives it lowered, a new copy in every call."""

    def __init__(
        self,
        make: Callable[[], Program],
        target: TimedTarget,
        measured: MeasuredKernels,
        compare: Compare = compare_instructions,
    ) -> None:
        """measured: what is known, and where new results go. compare: the clock.

        Raises UsageError for a target without kernels.
        """
        self._make = make
        self._target = target
        self._isa = capabilities.machine(target)
        self._measured = measured
        self._compare = compare
        program = self._selected({}, epilogues=False)
        self._names: dict[str, list[str]] = {}
        self._kernels = self._open_kernels(program)
        self._epilogues = self._open_epilogues(program)
        self._alternatives = self._kernels | self._epilogues

    @property
    def pending(self) -> int:
        """Number of kernels that have not been measured yet."""
        return sum(len(self._unmeasured(key)) for key in self._alternatives)

    def run(self, advance: Advance) -> KernelTuning:
        """Measure all that has not been measured; `advance` is told of every kernel that is done.

        Raises InputFileError if the results cannot be written.
        """
        for keys in (self._kernels, self._epilogues):
            base = self._chosen(self._kernels) if keys is self._epilogues else {}
            while tried := self._next_round(keys):
                before = self.pending
                self._measure(base, tried)
                self._measured.save()
                advance(before - self.pending)
        chosen = self._chosen(self._alternatives)
        kernels = sum(len(found) for found in self._alternatives.values())
        return KernelTuning(len(self._alternatives), kernels, len(chosen), self._gain(chosen))

    def _open_kernels(self, program: Program) -> dict[str, list[str]]:
        """Kernels besides the estimate's, by key, for keys that have any."""
        found: dict[str, list[str]] = {}
        for instruction in program.code:
            if not instruction.kernel or instruction.stack is not None:
                continue
            first, *others = alternatives(instruction, self._isa)
            if others and instruction.kernel == first.describe():
                key = kernel_key(instruction, self._isa)
                self._names.setdefault(key, []).append(instruction.name)
                found[key] = [kernel.describe() for kernel in others]
        return found

    def _open_epilogues(self, program: Program) -> dict[str, list[str]]:
        """Ways to execute a group other than the usual one, by key."""
        found: dict[str, list[str]] = {}
        for group in epilogue_groups(program, self._isa):
            key = epilogue_key(group, self._isa)
            self._names.setdefault(key, []).extend(member.name for member in group)
            found[key] = [way for way in ways(group, self._isa) if way != usual_way(group, self._isa)]
        return found

    def _chosen(self, keys: Iterable[str]) -> Choices:
        every = self._measured.choices()
        return {key: every[key] for key in keys if key in every}

    def _unmeasured(self, key: str) -> list[str]:
        done = self._measured.ratios.get(key, {})
        return [kernel for kernel in self._alternatives[key] if kernel not in done]

    def _next_round(self, keys: Iterable[str]) -> Choices:
        """Kernel to measure next for every key; keys with nothing left to measure are left out."""
        chosen = {}
        for key in keys:
            waiting = self._unmeasured(key)
            best = self._measured.best(key)
            if waiting:
                chosen[key] = waiting[0]
            elif best is not None and not self._measured.is_confirmed(key, best):
                chosen[key] = best
        return chosen

    def _measure(self, base: Choices, tried: Choices) -> None:
        """Note what `tried` makes of the time that instructions take with the choices of `base`."""
        programs = self._selected(base), self._selected({**base, **tried})
        usual, other = self._compare(*programs, self._target)
        for key, kernel in tried.items():
            before, after = (sum(ticks[name] for name in self._names[key]) for ticks in (usual, other))
            if before > 0.0 and after > 0.0:
                self._measured.add(key, kernel, after / before)
            else:  # too short for the clock: nothing to gain
                self._measured.add(key, kernel, 1.0)

    def _gain(self, chosen: Choices) -> float:
        if not chosen:
            return 1.0
        usual, other = self._compare(self._selected({}), self._selected(chosen), self._target)
        return sum(usual.values()) / sum(other.values())

    def _selected(self, choices: Choices, epilogues: bool = True) -> Program:
        program = self._make()
        self._target.select(program, choices, epilogues=epilogues)
        self._target.plan(program)
        return program


def tune_kernels(graph: Graph, isa: str | None, progress: Progress | None) -> KernelTuning:
    """Measure the kernels of a graph; `progress` is told of kernels.

    Raises UsageError for a target that the host cannot run or that has no kernels to measure,
    InputFileError if the cache cannot be written.
    """
    target = capabilities.timed(select_target(isa))
    measured = MeasuredKernels.load(capabilities.machine(target))
    search = KernelSearch(lambda: lower_graph(graph), target, measured)
    return search.run(start(progress, search.pending))
