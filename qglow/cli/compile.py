"""qglow compile: a program for this processor, or the instructions that it would be made of."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qglow.cli.options import IsaOption, ShapeOption, TargetArgument
from qglow.cli.output import say
from qglow.cli.targets import open_graph_target
from qglow.report.document import byte_count


def compile(
    target: TargetArgument,
    dump_ir: Annotated[
        bool, typer.Option("--dump-ir", help="Print the instruction program instead of compiling.")
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
    quantized already.
    """
    model = open_graph_target(target, shape)
    if dump_ir:
        say(model.text("instructions").rstrip("\n"))
    if dump_ir and output is None:
        return
    path = output or Path(f"{target.resolve().stem}.qglow")
    model.save_program(path, isa=isa)
    say(f"{path}: {byte_count(path.stat().st_size)}")
