"""qglow run: a program over data, and what it answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from qglow.api import Array, run_data
from qglow.api.arrays import pack_arrays
from qglow.cli.options import (
    IsaOption,
    RecipeOption,
    RequiredDataOption,
    SamplesOption,
    SelectOption,
    ShapeOption,
    TargetArgument,
    ThreadsOption,
    read_recipe,
)
from qglow.cli.output import say, showing_progress
from qglow.cli.targets import open_program
from qglow.core.files import atomic_writer

_SHOWN = 4
"""Elements of an output that is no list of class scores, shown for every sample."""


def run(
    target: TargetArgument,
    data: RequiredDataOption,
    select: SelectOption = None,
    samples: SamplesOption = None,
    recipe: RecipeOption = None,
    top: Annotated[int, typer.Option("--top", metavar="K", help="Classes to print a sample.")] = 1,
    shape: ShapeOption = None,
    isa: IsaOption = None,
    threads: ThreadsOption = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Run the machine code in TARGET instead of compiling its text.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write all outputs, as .npz.")
    ] = None,
) -> None:
    """Run a model over data.

    TARGET is a .qglow file, a quantized directory or an ONNX model, which runs in float unless it is
    quantized already. Prints a line a sample: its best classes with their scores, or the first
    elements of outputs that are no class scores.
    """
    program, own = open_program(target, shape, isa, trust, threads)
    collected: dict[str, list[Array]] = {name: [] for name in program.outputs}
    with showing_progress("running") as progress:
        opened = run_data(
            program,
            data,
            recipe=own if recipe is None else read_recipe(recipe),
            select=select,
            samples=samples,
            progress=progress,
        )
        for key, outputs in opened:
            say(f"{key}: " + "; ".join(_answer(name, array, top) for name, array in outputs.items()))
            for name, array in outputs.items() if output is not None else ():
                collected[name].append(array)
    if output is not None:
        with atomic_writer(output) as stream:
            pack_arrays(stream, {name: np.stack(arrays) for name, arrays in collected.items()})


def _answer(name: str, array: Array, top: int) -> str:
    flat = array.reshape(-1)
    if flat.size == array.shape[0] and flat.size > 1:
        best = np.argsort(-flat, kind="stable")[: max(top, 1)]
        return f"{name} " + ", ".join(f"{index} ({flat[index]:.4g})" for index in best)
    shown = ", ".join(f"{value:.6g}" for value in flat[:_SHOWN])
    more = ", ..." if flat.size > _SHOWN else ""
    return f"{name} {list(array.shape)} [{shown}{more}]"
