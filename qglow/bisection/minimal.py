"""The smallest part of a model that still shows a difference, written to files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qglow.bisection.cut_graph import cut_pair
from qglow.bisection.cut_program import cut, executed
from qglow.bisection.kernels import KernelDifference, first_kernel
from qglow.bisection.rewrites import RewriteDifference
from qglow.bisection.texts import write_arrays, write_ir
from qglow.core.types import Array
from qglow.graph.graph import Graph
from qglow.instructions.program import Program
from qglow.targets.protocol import SteppedTarget

MODEL, AFTER, INPUTS = "minimal.txt", "after.txt", "inputs.npz"


@dataclass(frozen=True)
class MinimalProgram:
    """Instructions that show a difference by themselves, with their inputs."""

    program: Program
    inputs: Mapping[str, Array]
    difference: KernelDifference


def minimal_program(
    program: Program,
    found: KernelDifference,
    left: SteppedTarget,
    right: SteppedTarget,
    inputs: Mapping[str, Array],
    tolerance: float,
) -> MinimalProgram:
    """The shortest run of instructions, ending with those found, on which the targets still differ.

    A kernel may depend on what comes before it (a padded buffer, an epilogue), so that more than its own
    instructions can be needed: their number is doubled until the difference shows. The whole program
    shows it in the end.
    """
    places = {instruction.name: place for place, instruction in enumerate(executed(program))}
    known = [places[name] for name in found.instructions if name in places]
    if not known:
        known = _places_around(program, found.nodes)
    last = max(known, default=len(places) - 1)
    first = min(known, default=0)
    length = last - first + 1
    while first > 0:
        part, fed = cut(program, first, last, inputs)
        shown = first_kernel(part, left, right, fed, tolerance)
        if shown is not None:
            return MinimalProgram(part, fed, shown)
        length *= 2
        first = max(0, last + 1 - length)
    part, fed = cut(program, 0, last, inputs)
    shown = first_kernel(part, left, right, fed, tolerance)
    if shown is not None:
        return MinimalProgram(part, fed, shown)
    return MinimalProgram(program, inputs, found)


def _places_around(program: Program, nodes: Sequence[str]) -> list[int]:
    """Places of the instructions of some nodes and of those that read what they write.

    A target fills the padding of a buffer in an instruction of its own, because of those that read it.
    """
    instructions = list(enumerate(executed(program)))
    writers = [(place, i) for place, i in instructions if set(i.origin) & set(nodes)]
    roots = {buffer.root for _, i in writers for buffer in i.writes()}
    readers = [place for place, i in instructions if roots & {buffer.root for buffer in i.reads()}]
    return [place for place, _ in writers] + readers


def write_minimal(folder: Path, program: Program, inputs: Mapping[str, Array]) -> None:
    """Write minimal.txt, its constants, and inputs.npz into a folder. Raises InputFileError."""
    folder.mkdir(parents=True, exist_ok=True)
    write_ir(program, folder / MODEL)
    write_arrays(folder / INPUTS, inputs)


def write_rewrite(
    folder: Path, found: RewriteDifference, inputs: Mapping[str, Array], tolerance: float
) -> None:
    """Write what the rewrite found (minimal.txt) and left (after.txt), cut to the part that differs.

    Programs, and what the verifier refuses, are written whole. Raises InputFileError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    before, after = found.before, found.after
    if isinstance(before, Graph) and isinstance(after, Graph):
        pair = cut_pair(before, after, inputs, tolerance)
        before, after, inputs = pair.before, pair.after, pair.inputs
    write_ir(before, folder / MODEL)
    if after is not None:
        write_ir(after, folder / AFTER)
    write_arrays(folder / INPUTS, inputs)
