"""qglow inspect: a model at any stage on its way to machine code."""

from __future__ import annotations

from typing import Annotated

import typer

from qglow.api import Model, QuantizedModel, load_model
from qglow.cli.options import (
    IsaOption,
    ProfileOption,
    RecipeOption,
    ShapeOption,
    TargetArgument,
    parse_shapes,
)
from qglow.cli.output import say
from qglow.cli.targets import open_graph_target
from qglow.core.errors import UsageError
from qglow.graph.dot import to_dot
from qglow.graph.text import print_graph

STAGES = ("graph", "quantized", "instructions", "kernels", "memory", "llvm", "asm")


def inspect(
    target: TargetArgument,
    stage: Annotated[str, typer.Option("--stage", metavar="NAME", help=", ".join(STAGES) + ".")] = "graph",
    passes: Annotated[
        str | None,
        typer.Option("--passes", metavar="PASSES", help="Graph passes to run, '' for none."),
    ] = None,
    profile: ProfileOption = None,
    recipe: RecipeOption = None,
    dot: Annotated[bool, typer.Option("--dot", help="A graph in Graphviz' language.")] = False,
    shape: ShapeOption = None,
    isa: IsaOption = None,
    measured: Annotated[
        bool, typer.Option("--measure", help="With --stage kernels: times on this machine too.")
    ] = False,
) -> None:
    """Print a model at a stage of compilation.

    An ONNX model is shown in float, a quantized directory in int8; so is an ONNX model that is
    quantized already.

    With --profile a model is quantized first. --stage instructions shows the program before
    kernels are selected or, with --isa, that ISA's kernels and the memory plan; --stage kernels
    lists the kernels with their estimated cost and, with --measure, what they cost here and their share
    of the processor's peak; --stage memory shows the plan over time.
    """
    if stage not in STAGES:
        raise UsageError(f"--stage {stage!r} is not one of {', '.join(STAGES)}")
    if passes is not None and (stage != "graph" or target.suffix != ".onnx"):
        raise UsageError("--passes goes with an ONNX model and --stage graph")
    if passes is not None:
        graph_model: Model | QuantizedModel = load_model(target, parse_shapes(shape), passes=passes)
    else:
        graph_model = open_graph_target(target, shape, profile, recipe)
    if measured and stage != "kernels":
        raise UsageError("--measure goes with --stage kernels")
    say(_text(graph_model, stage, isa, dot, measured).rstrip("\n"))


def _text(model: Model | QuantizedModel, stage: str, isa: str | None, dot: bool, measured: bool) -> str:
    quantized = isinstance(model, QuantizedModel)
    if stage == "quantized" and not quantized:
        raise UsageError("--stage quantized needs a quantized directory, or MODEL with --profile")
    if dot and stage not in ("graph", "quantized"):
        raise UsageError(f"--dot draws graphs, not --stage {stage}")
    if stage not in ("graph", "quantized"):
        return model.text(stage, isa, measure=measured)
    graph = model.float_graph if isinstance(model, QuantizedModel) and stage == "graph" else model.graph
    return to_dot(graph) if dot else print_graph(graph)
