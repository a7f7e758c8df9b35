"""Running programs over data: answers, accuracy against onnxruntime, latency."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from qglow.api.data import Data, Progress, open_samples, start
from qglow.api.model import Model, load_model
from qglow.api.quantized import QuantizedModel
from qglow.api.stages import selected_program
from qglow.core.errors import ModelError
from qglow.core.files import sha256_hex, write_atomically
from qglow.core.types import Array
from qglow.kernels.isa import select_isa
from qglow.profiling.datasets import DataSet
from qglow.profiling.samples import batches
from qglow.recipe.schema import Recipe
from qglow.report.bench import BenchResult
from qglow.report.bench import bench as run_bench
from qglow.report.comparison import QDQ, Comparison, Limits, check
from qglow.report.comparison import compare as run_comparison
from qglow.report.contenders import of_executable, of_onnxruntime, of_openvino, random_inputs
from qglow.report.layers import LayerReport
from qglow.report.layers import compare_layers as run_layers
from qglow.report.node_times import NodeTimes, measure_nodes
from qglow.report.openvino_model import has_bfloat16
from qglow.report.oracle import OnnxruntimeModel
from qglow.report.report import timings_json
from qglow.report.runner import RealInterface, Runner, batch_size, real_types, run_samples, stored
from qglow.report.task_metric import open_metric
from qglow.runtime.cores import choose_threads
from qglow.runtime.executable import Executable
from qglow.toolchain import CompileOptions, compile_graph


def run_data(
    program: Executable,
    data: Data,
    *,
    recipe: Recipe | None = None,
    select: str | None = None,
    samples: int | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[str, dict[str, Array]]]:
    """Outputs of every sample, with the sample's name and without a batch axis, one after the other.

    Data and outputs are reals, also where those of the program are int8.

    Options as for `Model.profile`. Raises DataError for data that does not fit the program.
    """
    runner = RealInterface(program, program.inputs, program.outputs)
    opened = open_samples(data, runner.inputs, recipe=recipe, select=select, samples=samples)
    advance = start(progress, opened.size)
    for batch in batches(opened, batch_size(runner)):
        outputs = run_samples(runner, batch.inputs)
        for row, key in enumerate(batch.keys):
            yield key, {name: array[row] for name, array in outputs.items()}
        advance(len(batch))


def compare(
    model: QuantizedModel,
    data: Data,
    *,
    recipe: Recipe | None = None,
    select: str | None = None,
    samples: int | None = None,
    labels: str | Path | None = None,
    metric: str | Callable[..., float] | None = None,
    isa: str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Run the compiled int8 model, the float model in onnxruntime and the QDQ model in onnxruntime.

    Where the model was quantized already, that very file takes the place of the float model.

    recipe: preprocessing and names of arrays (default: the model's own). labels: overrides labels
    found beside the data. metric: "psnr", "miou", "package.module:function" or a function, which takes
    some of `outputs`, `labels`, `keys` and `expected` by name and gives a number, higher is better (see
    `TaskMetric`). threads: of the int8 model and of onnxruntime. Other options as for
    `Model.profile`.

    Raises ModelError where the float model's file is missing or has changed, DataError for data
    that does not fit, UsageError for a metric that does not exist or fails.
    """
    measured = None if metric is None else open_metric(metric)
    shapes = {name: kind.shape for name, kind in model.inputs.items()}
    count = choose_threads(threads)
    reference = _of_reals(OnnxruntimeModel(source_file(model), shapes=shapes, threads=count), model)
    qdq = _of_reals(OnnxruntimeModel(model.qdq_bytes(), threads=count), model)
    subject = RealInterface(model.compile(isa, count), model.inputs, model.outputs)
    opened = _open(model, data, recipe, select, samples, labels)
    advance = start(progress, opened.size)
    return run_comparison(subject, reference, opened, rivals={QDQ: qdq}, metric=measured, advance=advance)


def compare_layers(
    model: QuantizedModel,
    data: Data,
    *,
    recipe: Recipe | None = None,
    select: str | None = None,
    samples: int | None = None,
    isa: str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> LayerReport:
    """Errors of every int8 node: alone, accumulated, and against onnxruntime on the same integers.

    Options as for `compare`. Slow: the nodes run in numpy.
    """
    opened = _open(model, data, recipe, select, samples, None)
    observed = compile_graph(model.graph, CompileOptions(isa=isa, threads=threads, observe=True))
    advance = start(progress, opened.size)
    return run_layers(model.float_graph, model.graph, opened, observed=observed, advance=advance)


def source_file(model: QuantizedModel) -> Path:
    """The float model's file. Raises ModelError where it is missing or has changed."""
    path = model.source.path
    try:
        digest = sha256_hex(path.read_bytes())
    except OSError as error:
        raise ModelError(
            f"cannot read the float model {path}: {error.strerror or error}; say where it is (--model)"
        ) from error
    if digest != model.source.sha256:
        raise ModelError(f"{path} has changed since it was quantized; profile and quantize it again")
    return path


def float_model(model: QuantizedModel) -> Model:
    """The float model that was quantized, with the same shapes. Raises ModelError as `source_file`."""
    shapes = {name: kind.shape for name, kind in model.inputs.items()}
    return load_model(source_file(model), shapes)


def bench(
    model: Model | QuantizedModel,
    *,
    isa: str | None = None,
    threads: int | None = None,
    alternations: int = 50,
    openvino: bool = False,
    progress: Progress | None = None,
) -> BenchResult:
    """Median latencies, measured in turns: qglow and onnxruntime, float32 and int8.

    The int8 programs are left out for a float model, the float32 ones for a model that was quantized
    already: there onnxruntime runs that very file. `openvino` adds OpenVINO on the same files, and in
    bfloat16 where the processor has it.
    Inputs are random. threads: of every program (default: QGLOW_THREADS, else the physical cores
    that the process may use). Raises UsageError where OpenVINO is asked for and not installed.
    """
    original = float_model(model) if isinstance(model, QuantizedModel) else model
    count, inputs = choose_threads(threads), random_inputs(real_types(original.inputs))
    files: dict[str, Path | bytes] = {} if original.is_quantized else {"float32": original.path}
    fed = {"float32": inputs}
    contenders = {}
    if isinstance(model, QuantizedModel):
        integers = {name: stored(inputs[name], kind, unsigned=True) for name, kind in model.inputs.items()}
        files["int8"] = original.path if original.is_quantized else model.qdq_bytes()
        fed["int8"] = _stored_for(files["int8"], inputs, model)
        contenders["qglow int8"] = of_executable(model.compile(isa, count), integers)
    if not original.is_quantized:
        contenders["qglow float32"] = of_executable(original.compile(isa, count), inputs)
    for kind, file in files.items():
        contenders[f"onnxruntime {kind}"] = of_onnxruntime(file, fed[kind], count)
    for kind, file in files.items() if openvino else ():
        contenders[f"OpenVINO {kind}"] = of_openvino(file, fed[kind], count)
        if kind == "float32" and has_bfloat16():
            contenders["OpenVINO bfloat16"] = of_openvino(file, fed[kind], count, "bf16")
    result = run_bench(contenders, alternations, advance=start(progress, alternations))
    return replace(result, threads=count)


def bench_nodes(model: QuantizedModel, *, isa: str | None = None) -> NodeTimes:
    """What every node costs in the int8 program, and in onnxruntime on the int8 file that `bench` gives it.

    On one thread; inputs are random. Raises UsageError for an ISA that the host lacks.
    """
    original = float_model(model)
    file = original.path if original.is_quantized else model.qdq_bytes()
    inputs = _stored_for(file, random_inputs(real_types(original.inputs)), model)
    return measure_nodes(selected_program(model.graph, isa), select_isa(isa), file, inputs)


def _of_reals(program: OnnxruntimeModel, model: QuantizedModel) -> Runner:
    """The program seen as one of reals; integers at its ends have the parameters of the model."""
    integers = program.integers
    if not integers:
        return program
    sides = (model.inputs, model.outputs)
    inputs, outputs = (
        {name: kind if name in integers else real_types({name: kind})[name] for name, kind in side.items()}
        for side in sides
    )
    return RealInterface(program, inputs, outputs, unsigned=any(integers.values()))


def _stored_for(file: Path | bytes, reals: Mapping[str, Array], model: QuantizedModel) -> dict[str, Array]:
    """Inputs as onnxruntime wants them for this file."""
    shapes = {name: array.shape for name, array in reals.items()}
    integers = OnnxruntimeModel(file, shapes=shapes).integers
    kinds = model.inputs
    return {n: stored(a, kinds[n], integers[n]) if n in integers else a for n, a in reals.items()}


def check_limits(comparison: Comparison, limits: Limits) -> None:
    """Hold the int8 program to limits against float32 in onnxruntime.

    Raises ComparisonFailed with every limit that is broken, UsageError for one that cannot apply.
    """
    check(comparison, limits)


def save_timings(result: BenchResult, path: str | Path) -> None:
    """Write latencies as JSON, whole or not at all. Raises InputFileError."""
    write_atomically(Path(path), timings_json(result))


def _open(
    model: QuantizedModel,
    data: Data,
    recipe: Recipe | None,
    select: str | None,
    samples: int | None,
    labels: str | Path | None,
) -> DataSet:
    return open_samples(
        data,
        real_types(model.inputs),
        recipe=recipe or model.recipe,
        select=select,
        samples=samples,
        labels=labels,
    )
