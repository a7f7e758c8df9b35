"""qglow run: a program over data, and what it answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qglow.api.options import MODEL, OUTPUT, TrustOptions
from qglow.cli.options import RECIPE, DataOptions, TargetOptions, parse_states, read_recipe
from qglow.cli.output import say, showing_progress
from qglow.cli.targets import open_program
from qglow.core.options import Writes, declare, option

if TYPE_CHECKING:
    from qglow.api import Array

EXAMPLES = ("qglow run model.quantized --data test/ --top 3 -o outputs.npz",)
_SHOWN = 4
"""Elements of an output that is no list of class scores, shown for every sample."""


@dataclass(frozen=True, kw_only=True)
class ProgramOptions(TargetOptions):
    """Options of what runs."""

    target: Path = option(
        help="A .qglow file, a quantized directory or an ONNX model",
        argument=True,
        metavar="TARGET",
        group=MODEL,
    )
    recipe: Path | None = declare(RECIPE, None)
    states: Sequence[str] = option(
        (),
        "Input that keeps an output for the next sample, as h=next_h: the samples are one stream",
        group=MODEL,
        metavar="INPUT=OUTPUT",
        flags=("--state",),
        typed=list[str],
    )


@dataclass(frozen=True, kw_only=True)
class AnswerOptions:
    """Options of what is shown and written."""

    top: int = option(1, "Classes to print for each sample", group=OUTPUT, metavar="K")
    output: Path | None = option(
        None,
        "Write all outputs, as .npz: each stacked, or as OUTPUT/SAMPLE for each sample where shapes differ",
        group=OUTPUT,
        metavar="FILE",
        flags=("--output", "-o"),
        writes=Writes.FILE,
    )


def run(program: ProgramOptions, data: DataOptions, running: TrustOptions, answers: AnswerOptions) -> None:
    """Run a model over data.

    An ONNX model runs in float unless it is quantized already. Prints one line for each sample: its best
    classes with their scores, or the first elements of outputs that are no class scores.
    With --state the samples are the pieces of one stream, in their order.
    """
    from qglow.api import StreamingExecutable, run_data
    from qglow.core.arrays import pack_arrays
    from qglow.core.files import atomic_writer

    states = parse_states(program.states)
    executable, own = open_program(
        program.target, program.shapes, running.isa, running.trust, running.threads, program.values
    )
    if states:
        executable = StreamingExecutable(executable, states)
    collected: dict[str, list[tuple[str, Array]]] = {}
    with showing_progress("running") as progress:
        opened = run_data(
            executable,
            data.data,
            recipe=own if program.recipe is None else read_recipe(program.recipe),
            select=data.select,
            samples=data.samples,
            progress=progress,
        )
        for key, outputs in opened:
            say(f"{key}: " + "; ".join(_answer(name, array, answers.top) for name, array in outputs.items()))
            for name, array in outputs.items() if answers.output is not None else ():
                collected.setdefault(name, []).append((key, array))
    if answers.output is not None:
        with atomic_writer(answers.output) as stream:
            pack_arrays(stream, dict(_written(collected)))


def _written(collected: Mapping[str, Sequence[tuple[str, Array]]]) -> Iterator[tuple[str, Array]]:
    """Outputs of all samples along a new first axis, or one by one where their shapes differ.

    These have the names of the samples, or numbers where two have the same.
    """
    import numpy as np

    for name, samples in collected.items():
        keys, arrays = zip(*samples, strict=True)
        if len({array.shape for array in arrays}) == 1:
            yield name, np.stack(arrays)
            continue
        labels = keys if len(set(keys)) == len(keys) else range(len(keys))
        yield from ((f"{name}/{label}", array) for label, array in zip(labels, arrays, strict=True))


def _answer(name: str, array: Array, top: int) -> str:
    import numpy as np

    flat = array.reshape(-1)
    if array.ndim and flat.size == array.shape[0] > 1:
        best = np.argsort(-flat, kind="stable")[: max(top, 1)]
        return f"{name} " + ", ".join(f"{index} ({flat[index]:.4g})" for index in best)
    shown = ", ".join(f"{value:.6g}" for value in flat[:_SHOWN])
    more = ", ..." if flat.size > _SHOWN else ""
    return f"{name} {list(array.shape)} [{shown}{more}]"
