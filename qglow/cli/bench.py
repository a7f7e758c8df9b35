"""qglow bench: latency against onnxruntime on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qglow.api import QuantizedModel, save_timings
from qglow.api import bench as measure
from qglow.api.evaluation import bench_nodes
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
from qglow.core.errors import UsageError
from qglow.report.node_times import node_section
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
    layers: Annotated[
        bool, typer.Option("--layers", help="The time of every node too, beside onnxruntime's.")
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
    if layers and not isinstance(model, QuantizedModel):
        raise UsageError(
            "--layers compares nodes of an int8 model, a quantized directory or MODEL with --profile; "
            "for a float one: qglow inspect --stage kernels --measure"
        )
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
    if layers and isinstance(model, QuantizedModel):
        show(node_section(bench_nodes(model, isa=isa)))
    if output is not None:
        save_timings(result, output)
        say(f"{output}: timings")
