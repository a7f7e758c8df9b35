"""Kernels chosen by measuring: every setting that may be better, in the place where it will run.

Each round compiles the program once, with the next setting of every distinct instruction, and lets
it take turns with the program of the estimate's kernels. So an instruction is measured with the caches
as the program leaves them, and one compilation serves all. What was measured is written after every
round, so that an interrupted search goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from qglow.codegen.kernel_choices import MeasuredKernels
from qglow.instructions.plan import plan_memory
from qglow.instructions.program import Program
from qglow.kernels.isa import Isa
from qglow.kernels.select import Choices, alternatives, kernel_key, select_kernels
from qglow.toolchain.timing import Ticks, compare_instructions

Compare = Callable[[Program, Program, Isa], tuple[Ticks, Ticks]]
"""Times of the instructions of two programs by name, in any unit."""
Advance = Callable[[int], None]


@dataclass(frozen=True)
class KernelTuning:
    """What a search over kernels found.

    shapes: distinct instructions that have a choice. kernels: how many were measured for them.
    changed: shapes that a measurement gives another kernel than the estimate. gain: the time of the whole
    program with the estimate's kernels over that with the choices, measured in turns; 1 without any.
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
        isa: Isa,
        measured: MeasuredKernels,
        compare: Compare = compare_instructions,
    ) -> None:
        self._make = make
        self._isa = isa
        self._measured = measured
        self._compare = compare
        self._keys, self._alternatives = self._open_choices()

    @property
    def pending(self) -> int:
        """How many kernels have not been measured yet."""
        return sum(len(self._unmeasured(key)) for key in self._alternatives)

    def run(self, advance: Advance) -> KernelTuning:
        """Measure all that has not been measured; `advance` is told of every kernel that is done.

        Raises InputFileError where the results cannot be written.
        """
        while tried := self._next_round():
            before = self.pending
            self._measure(tried)
            self._measured.save()
            advance(before - self.pending)
        every = self._measured.choices()
        chosen = {key: every[key] for key in self._alternatives if key in every}
        kernels = sum(len(found) for found in self._alternatives.values())
        return KernelTuning(len(self._alternatives), kernels, len(chosen), self._gain(chosen))

    def _open_choices(self) -> tuple[Mapping[str, str], Mapping[str, list[str]]]:
        """Keys by instruction, and for each key the kernels besides the estimate's, where there are any."""
        program = self._selected({})
        keys, found = {}, {}
        for instruction in program.code:
            if not instruction.kernel or instruction.stack is not None:
                continue
            first, *others = alternatives(instruction, self._isa)
            if others and instruction.kernel == first.describe():
                key = kernel_key(instruction, self._isa)
                keys[instruction.name] = key
                found[key] = [kernel.describe() for kernel in others]
        return keys, found

    def _unmeasured(self, key: str) -> list[str]:
        done = self._measured.ratios.get(key, {})
        return [kernel for kernel in self._alternatives[key] if kernel not in done]

    def _next_round(self) -> Choices:
        """For every key the kernel to be measured next; none where nothing is left to be known."""
        chosen = {}
        for key in self._alternatives:
            waiting = self._unmeasured(key)
            best = self._measured.best(key)
            if waiting:
                chosen[key] = waiting[0]
            elif best is not None and not self._measured.is_confirmed(key, best):
                chosen[key] = best
        return chosen

    def _measure(self, tried: Choices) -> None:
        usual, other = self._compare(self._selected({}), self._selected(tried), self._isa)
        for key, kernel in tried.items():
            names = [name for name, own in self._keys.items() if own == key]
            before, after = (sum(ticks[name] for name in names) for ticks in (usual, other))
            if before > 0.0 and after > 0.0:
                self._measured.add(key, kernel, after / before)
            else:  # too short for the clock: nothing to gain
                self._measured.add(key, kernel, 1.0)

    def _gain(self, chosen: Choices) -> float:
        if not chosen:
            return 1.0
        usual, other = self._compare(self._selected({}), self._selected(chosen), self._isa)
        return sum(usual.values()) / sum(other.values())

    def _selected(self, choices: Choices) -> Program:
        program = self._make()
        select_kernels(program, self._isa, choices)
        plan_memory(program)
        return program
