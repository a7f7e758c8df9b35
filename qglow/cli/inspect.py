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
_WIDTH = 120
EXAMPLES = (
    "qglow inspect model.onnx --dot",
    "qglow inspect model.quantized --stage kernels --measure",
    "qglow inspect model.quantized/model.qglow",
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
    plan over time. Of a .qglow file the shapes are shown that it has programs for, and its parts.
    """
    from qglow.api import load_model

    if model.target.suffix == ".qglow" and model.target.is_file():
        _show_program(model, shown)
        return
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


def _show_program(model: GraphOptions, shown: StageOptions) -> None:
    """Print the content of a compiled program. Raises UsageError for what it has not."""
    if shown.stage != "graph" or shown.dot or shown.passes or model.shapes or model.values or model.profile:
        raise UsageError(f"{model.target} is compiled already: inspect shows its programs, without options")
    from qglow.display.terminal import to_text
    from qglow.report.program_file import program_file_document

    listing(to_text(program_file_document(model.target), _WIDTH))


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
