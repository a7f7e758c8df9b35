"""qglow compile: a program for this processor, or the instructions that it would be made of."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qglow.api import Model, QuantizedModel
from qglow.cli.options import IsaOption, ShapeOption, TargetArgument
from qglow.cli.output import say, showing_progress
from qglow.cli.targets import open_graph_target
from qglow.report.document import byte_count


def compile(
    target: TargetArgument,
    dump_ir: Annotated[
        bool, typer.Option("--dump-ir", help="Print the instruction program instead of compiling.")
    ] = False,
    tune: Annotated[
        bool,
        typer.Option("--tune", help="Measure kernels on this processor first; keep the best for later."),
    ] = False,
    shape: ShapeOption = None,
    isa: IsaOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The program to write [TARGET's name.qglow]."),
    ] = None,
) -> None:
    """Compile a model to one .qglow file.

    An ONNX model is compiled in float, a quantized directory in int8, and so is an ONNX model that is
    quantized already. --tune measures the settings of kernels for every shape of a layer and writes the best
    to the user's cache, from which every later compilation takes them; results stay the same bits. It can be
    interrupted, and goes on where it was.
    """
    model = open_graph_target(target, shape)
    if dump_ir:
        say(model.text("instructions").rstrip("\n"))
    if dump_ir and output is None:
        return
    if tune:
        _tune(model, isa)
    path = output or Path(f"{target.resolve().stem}.qglow")
    model.save_program(path, isa=isa)
    say(f"{path}: {byte_count(path.stat().st_size)}")


def _tune(model: Model | QuantizedModel, isa: str | None) -> None:
    with showing_progress("measuring", unit="kernels") as progress:
        found = model.tune_kernels(isa, progress=progress)
    say(
        f"{found.kernels} kernels for {found.shapes} shapes measured: others than estimated for "
        f"{found.changed}, {found.gain:.3f} times as fast"
    )
