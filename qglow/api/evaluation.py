"""Running programs over data: answers, accuracy against onnxruntime, latency."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Unpack

from qglow.api.keywords import (
    CompareKeywords,
    IsaKeywords,
    LatencyKeywords,
    RunKeywords,
    SampledKeywords,
    SelectionKeywords,
)
from qglow.api.model import Model
from qglow.api.options import (
    CompareOptions,
    IsaOptions,
    LatencyOptions,
    RunOptions,
    SampledOptions,
    SelectionOptions,
)
from qglow.api.quantized import QuantizedModel
from qglow.artefacts.open_shapes import open_shapes
from qglow.core.files import write_atomically
from qglow.core.keywords import taking
from qglow.core.progress import Progress
from qglow.core.types import Array
from qglow.recipe.schema import Recipe
from qglow.report.bench import BenchResult
from qglow.report.comparison import Limits, check
from qglow.report.comparison_result import Comparison
from qglow.report.decoding import DecodingResult
from qglow.report.evaluation import compare_nodes, compare_outputs, open_evaluation_data, run_over_data
from qglow.report.hosted_time import HostedTime
from qglow.report.latencies import (
    advising_data,
    measure_hosted_time,
    measure_latencies,
    measure_node_times,
)
from qglow.report.layer_report import LayerReport
from qglow.report.node_times import NodeTimes
from qglow.report.report import timings_json
from qglow.report.task_metric import data_labels, open_metric
from qglow.runtime.executable import Executable
from qglow.toolchain import CompileOptions
from qglow.toolchain.samples import Data


@taking(SelectionOptions)
def run_data(
    program: Executable,
    data: Data,
    *,
    recipe: Recipe | None = None,
    progress: Progress | None = None,
    **options: Unpack[SelectionKeywords],
) -> Iterator[tuple[str, dict[str, Array]]]:
    """Run a program over data: yields the name and the outputs of one sample after the other.

    Outputs have no batch axis. Data and outputs are floats, even if the program's inputs or outputs are int8.
    Options are as for `Model.profile`. Raises DataError for data that does not fit the program.
    """
    return run_over_data(program, data, recipe=recipe, progress=progress, **options)


@taking(CompareOptions)
def compare(
    model: QuantizedModel,
    data: Data,
    *,
    recipe: Recipe | None = None,
    program: Executable | None = None,
    progress: Progress | None = None,
    **options: Unpack[CompareKeywords],
) -> Comparison:
    """Compare the compiled int8 model with the float model and with the QDQ model, both in onnxruntime.

    For a model that was quantized before it was loaded, its own file takes the place of the float model.

    recipe: preprocessing and names of arrays (default: the model's own). labels: overrides labels
    found beside the data; a metric of boxes or sequences reads what is true from that file instead. metric:
    a name such as "psnr" or "map50:my_model:decode" (see `qglow.metrics`), "package.module:function", or a
    function, which takes some of `outputs`, `labels`, `keys`, `expected`, `inputs`, `tokens`, `photos` and
    `sequences` by name and gives a number, higher is better (see `TaskMetric`). threads: of the int8 model
    and of onnxruntime. program: what is measured in place of the compiled model, such as a bundle from
    `load_bundle`. A target that this host cannot run is emulated, where there is an emulator. Where the
    model's file leaves more than the batch open, samples may have other shapes than the profile: programs are
    compiled for each of a few, and for all where there are more and the model can have such. Other options
    as for `Model.profile`.

    Raises ModelError if the float model's file is missing or has changed, DataError for data
    that does not fit, UsageError for a metric that does not exist or fails.
    """
    metric, labels = options["metric"], options["labels"]
    measured = None if metric is None else open_metric(metric, labels)
    known = data_labels(measured, labels)
    parts, code = model._parts, CompileOptions(isa=options["isa"], threads=options["threads"])
    shapes = open_shapes(parts) if program is None else None
    opened = open_evaluation_data(parts, data, recipe, options["select"], options["samples"], known, shapes)
    return compare_outputs(
        parts, opened, metric=measured, options=code, program=program, shapes=shapes, progress=progress
    )


@taking(SampledOptions)
def compare_layers(
    model: QuantizedModel,
    data: Data,
    *,
    recipe: Recipe | None = None,
    progress: Progress | None = None,
    **options: Unpack[SampledKeywords],
) -> LayerReport:
    """Measure the error of every int8 node: alone, accumulated, and against onnxruntime on the same integers.

    Products with weights in blocks are measured too, against onnxruntime as floats. Samples of other shapes
    than the profile's are left out where the model's file leaves more than the batch open. Options
    are as for `compare`. This is slow, because nodes run in numpy. Raises ModelError and DataError as
    `compare` does.
    """
    parts, code = model._parts, CompileOptions(isa=options["isa"], threads=options["threads"])
    shapes = open_shapes(parts)
    opened = open_evaluation_data(parts, data, recipe, options["select"], options["samples"], shapes=shapes)
    return compare_nodes(parts, opened, options=code, shapes=shapes, progress=progress)


@taking(LatencyOptions)
def bench(
    model: Model | QuantizedModel,
    data: Data | None = None,
    *,
    recipe: Recipe | None = None,
    progress: Progress | None = None,
    **options: Unpack[LatencyKeywords],
) -> BenchResult:
    """Measure median latencies of qglow and onnxruntime, float32 and int8, in turns on the same inputs.

    data: the first of these samples are the inputs, prepared by `recipe`, or as the int8 model's own recipe
    says; without, inputs are random, and integers 0 or 1. A float model has no int8 programs. A model that
    was quantized before it was loaded has no float32 programs, and onnxruntime runs its own file. openvino:
    also measure OpenVINO on the same files, and in bfloat16 if the processor supports it. threads: of every
    program (default: QGLOW_THREADS, else the physical cores that the process may use). alternations: turns
    of each program.

    Raises UsageError if OpenVINO is asked for and not installed, DataError for data that does not fit.
    """
    measured = model._parts if isinstance(model, QuantizedModel) else model._loaded
    code = CompileOptions(isa=options["isa"], threads=options["threads"])
    with advising_data(data):
        return measure_latencies(
            measured,
            code,
            alternations=options["alternations"],
            openvino=options["openvino"],
            data=data,
            recipe=recipe,
            progress=progress,
        )


@taking(IsaOptions)
def bench_nodes(
    model: QuantizedModel,
    data: Data | None = None,
    *,
    recipe: Recipe | None = None,
    **options: Unpack[IsaKeywords],
) -> NodeTimes:
    """Measure the time of every node in the int8 program and in onnxruntime, on one thread.

    Inputs are as for `bench`, and onnxruntime runs the same int8 file. Raises UsageError for an ISA that the
    host lacks, DataError for data that does not fit.
    """
    with advising_data(data):
        return measure_node_times(model._parts, options["isa"], data, recipe)


@taking(RunOptions)
def bench_hosted(model: QuantizedModel, **options: Unpack[RunKeywords]) -> HostedTime | None:
    """Measure the share of the int8 program's time that its nodes in onnxruntime take, on random inputs.

    None for a model without such nodes. Raises DataError where one refuses these inputs, UsageError for an
    ISA that the host lacks.
    """
    code = CompileOptions(isa=options["isa"], threads=options["threads"])
    return measure_hosted_time(model._parts, code)


def check_limits(comparison: Comparison, limits: Limits) -> None:
    """Check that the int8 program stays within limits, compared with float32 in onnxruntime.

    Raises ComparisonFailed that names every broken limit, UsageError for a limit that cannot apply.
    """
    check(comparison, limits)


def save_timings(result: BenchResult | DecodingResult, path: str | Path) -> None:
    """Write times as JSON, whole or not at all. Raises InputFileError."""
    write_atomically(Path(path), timings_json(result))
