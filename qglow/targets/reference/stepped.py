"""Interpretation of a planned program that stops after every instruction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from qglow.core.types import Array
from qglow.instructions.interpreter import ArenaInterpreter
from qglow.instructions.liveness import changed_after, whole_at, written_borders, written_parts
from qglow.instructions.program import Buffer, Instruction, Program
from qglow.targets.protocol import Step


class SteppedInterpreter:
    """A planned program. Satisfies `SteppedProgram`."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._interpreter = ArenaInterpreter(program)

    def run(self, inputs: Mapping[str, Array]) -> Iterator[Step]:
        """Run instruction by instruction; `inputs` are logical arrays by name."""
        for state in self._interpreter.state.values():
            state[...] = 0
        steps: list[Step] = []

        def tap(instruction: Instruction, arrays: dict[str, Array]) -> None:
            parts = {part.name: _part(arrays[part.name], part) for part in written_parts(instruction)}
            parts |= {p.name: self._interpreter.window(p).copy() for p in written_borders(instruction)}
            steps.append(Step((instruction,), parts))

        self._interpreter.run(inputs, tap)
        yield from steps

    def run_changed(
        self,
        inputs: Mapping[str, Array],
        changes: Mapping[str, Callable[[Array], None]],
        keep: bool = False,
    ) -> dict[str, Array]:
        """Outputs by name, as `SteppedProgram` says; nothing is kept."""
        after = changed_after(whole_at(self._program), changes)
        buffers = {buffer.name: buffer for buffer in self._program.all_buffers()}

        def change(step: int) -> None:
            for name in after.get(step, ()):
                changes[name](self._interpreter.window(buffers[name]))

        return self._interpreter.run_between(inputs, change)

    def exchanged(
        self, constants: Mapping[str, Array], changed: Mapping[str, str]
    ) -> SteppedInterpreter | None:
        """None: an interpreter costs little to make."""
        return None


def _part(whole: Array, part: Buffer) -> Array:
    """Part of a whole buffer that an instruction wrote."""
    if part.type.shape == whole.shape:
        return whole
    return whole[tuple(slice(o, o + size) for o, size in zip(part.offsets, part.type.shape, strict=True))]
