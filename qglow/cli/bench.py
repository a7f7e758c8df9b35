"""qglow bench: latency against onnxruntime on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qglow.api.options import MEASURE, OUTPUT, RunOptions, TurnOptions
from qglow.cli.options import MeasuredOptions
from qglow.cli.output import say, show, showing_progress
from qglow.cli.targets import open_graph_target
from qglow.core.errors import UsageError
from qglow.core.options import Writes, option

EXAMPLES = ("qglow bench model.quantized --threads 1",)


@dataclass(frozen=True, kw_only=True)
class BenchOptions(TurnOptions):
    """Options of what is timed, and where the times go."""

    layers: bool = option(False, "Time every node too, in qglow and onnxruntime", group=MEASURE)
    output: Path | None = option(
        None,
        "Write the times, as JSON",
        group=OUTPUT,
        metavar="FILE",
        flags=("--output", "-o"),
        writes=Writes.FILE,
    )


def bench(model: MeasuredOptions, running: RunOptions, measure: BenchOptions) -> None:
    """Measure a model's latency against onnxruntime.

    qglow and onnxruntime run in turns, in float32 and int8, with the same number of threads.

    A quantized directory, or an ONNX model with --profile, is timed in float32 and int8; an ONNX model
    alone in float32; one that is quantized already in int8, against onnxruntime on the same file.
    """
    from qglow.api import QuantizedModel, save_timings
    from qglow.api import bench as measure_latency
    from qglow.api.evaluation import bench_nodes
    from qglow.report.node_times import node_section
    from qglow.report.sections import bench_section

    loaded = open_graph_target(
        model.target, model.shapes, model.profile, model.recipe, model.model, values=model.values
    )
    if measure.layers and not isinstance(loaded, QuantizedModel):
        raise UsageError(
            "--layers compares nodes of an int8 model, a quantized directory or MODEL with --profile; "
            "for a float one: qglow inspect --stage kernels --measure"
        )
    with showing_progress("measuring", "turns") as progress:
        result = measure_latency(
            loaded,
            isa=running.isa,
            alternations=measure.alternations,
            openvino=measure.openvino,
            threads=running.threads,
            progress=progress,
        )
    show(bench_section(result))
    if measure.layers and isinstance(loaded, QuantizedModel):
        show(node_section(bench_nodes(loaded, isa=running.isa)))
    if measure.output is not None:
        save_timings(result, measure.output)
        say(f"{measure.output}: timings")
