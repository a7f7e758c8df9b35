"""qglow bench: latency against onnxruntime on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qglow.api import bench as measure
from qglow.api import save_timings
from qglow.cli.options import (
    FloatModelOption,
    IsaOption,
    ProfileOption,
    RecipeOption,
    ShapeOption,
    TargetArgument,
    ThreadsOption,
)
from qglow.cli.output import say, show, showing_progress
from qglow.cli.targets import open_graph_target
from qglow.report.sections import bench_section


def bench(
    target: TargetArgument,
    profile: ProfileOption = None,
    recipe: RecipeOption = None,
    shape: ShapeOption = None,
    float_model: FloatModelOption = None,
    isa: IsaOption = None,
    threads: ThreadsOption = None,
    alternations: Annotated[
        int, typer.Option("--alternations", metavar="N", help="Turns that every program takes.")
    ] = 50,
    openvino: Annotated[
        bool, typer.Option("--openvino", help="Measure OpenVINO too (pip install 'qglow[bench]').")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the timings, as JSON.")
    ] = None,
) -> None:
    """Measure a model's latency.

    qglow and onnxruntime in turns, float32 and int8, on the same number of threads.

    A quantized directory, or MODEL with --profile, is timed in float32 and int8, a bare model in
    float32 alone; one that is quantized already in int8 alone, against onnxruntime on its own file.
    """
    model = open_graph_target(target, shape, profile, recipe, float_model)
    with showing_progress("measuring", "turns") as progress:
        result = measure(
            model,
            isa=isa,
            alternations=alternations,
            openvino=openvino,
            threads=threads,
            progress=progress,
        )
    show(bench_section(result))
    if output is not None:
        save_timings(result, output)
        say(f"{output}: timings")
