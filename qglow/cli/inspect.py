"""qglow inspect: a model at any stage on its way to machine code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from qglow.api.options import OUTPUT, GraphPassOptions, IsaOptions, ListingOptions, NativeOptions
from qglow.cli.options import GraphOptions, parse_shapes, parse_values
from qglow.cli.output import listing
from qglow.cli.targets import open_graph_target
from qglow.core.errors import UsageError
from qglow.core.options import option

if TYPE_CHECKING:
    from qglow.api import Model, QuantizedModel

STAGES = ("graph", "quantized", "instructions", "kernels", "memory", "llvm", "asm")
EXAMPLES = (
    "qglow inspect model.onnx --dot",
    "qglow inspect model.quantized --stage kernels --measure",
)


@dataclass(frozen=True, kw_only=True)
class StageOptions(GraphPassOptions, ListingOptions):
    """Options of what is shown."""

    stage: str = option("graph", "What to print", group=OUTPUT, choices=STAGES)
    dot: bool = option(False, "Print a graph in Graphviz' language", group=OUTPUT)


def inspect(model: GraphOptions, nodes: NativeOptions, code: IsaOptions, shown: StageOptions) -> None:
    """Print a model at a stage of compilation.

    An ONNX model is shown in float, and quantized first with --profile; a quantized directory, or an ONNX
    model that is quantized already, in int8.

    --stage instructions shows the program before kernels are selected or, with --isa, that ISA's kernels
    and the memory plan; --stage kernels lists kernels with their estimated cost; --stage memory shows the
    plan over time.
    """
    from qglow.api import load_model

    if shown.passes is not None and (shown.stage != "graph" or model.target.suffix != ".onnx"):
        raise UsageError("--passes goes with an ONNX model and --stage graph")
    if shown.passes is not None:
        loaded: Model | QuantizedModel = load_model(
            model.target,
            parse_shapes(model.shapes),
            values=parse_values(model.values),
            passes=shown.passes,
            native=nodes.native,
        )
    else:
        loaded = open_graph_target(
            model.target, model.shapes, model.profile, model.recipe, native=nodes.native, values=model.values
        )
    if shown.measure and shown.stage != "kernels":
        raise UsageError("--measure goes with --stage kernels")
    listing(_text(loaded, shown, code.isa))


def _text(model: Model | QuantizedModel, shown: StageOptions, isa: str | None) -> str:
    from qglow.api import QuantizedModel
    from qglow.graph.dot import to_dot
    from qglow.graph.text import print_graph

    stage = shown.stage
    if stage == "quantized" and not isinstance(model, QuantizedModel):
        raise UsageError("--stage quantized needs a quantized directory, or MODEL with --profile")
    if shown.dot and stage not in ("graph", "quantized"):
        raise UsageError(f"--dot draws graphs, not --stage {stage}")
    if stage not in ("graph", "quantized"):
        return model.text(stage, isa=isa, measure=shown.measure)
    graph = model.float_graph if isinstance(model, QuantizedModel) and stage == "graph" else model.graph
    return to_dot(graph) if shown.dot else print_graph(graph)
