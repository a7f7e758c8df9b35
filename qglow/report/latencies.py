"""Latencies of a model: qglow, onnxruntime and OpenVINO in turns, and node by node."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from qglow.core.batch import as_taken, batch_of
from qglow.core.errors import DataError
from qglow.core.progress import Progress, start
from qglow.core.types import Array
from qglow.graph.graph import Graph
from qglow.graph.missing import missing_inputs
from qglow.profiling.samples import batches
from qglow.recipe.schema import Recipe
from qglow.report.bench import BenchResult, Contender, bench
from qglow.report.contenders import of_executable, of_onnxruntime, of_openvino, random_inputs
from qglow.report.evaluation import inputs_for_file
from qglow.report.hosted_time import HostedTime, hosted_nodes, hosted_time
from qglow.report.node_times import NodeTimes, measure_nodes
from qglow.report.openvino_model import has_bfloat16
from qglow.report.parts import QuantizedParts, float_model
from qglow.report.runner import filled, real_types, stored
from qglow.report.without_tail import loaded_file
from qglow.runtime.cores import choose_threads
from qglow.targets import capabilities
from qglow.targets.registry import select_target
from qglow.toolchain import CompileOptions, compile_graph, selected_program
from qglow.toolchain.loaded import LoadedModel
from qglow.toolchain.samples import Data, open_samples

QGLOW_INT8 = "qglow int8"
RIVALS = {"float32": "onnxruntime float32", "int8": "onnxruntime int8"}
"""Names of onnxruntime's programs, by what the file that they run holds."""


def measure_latencies(
    model: LoadedModel | QuantizedParts,
    options: CompileOptions,
    *,
    alternations: int,
    openvino: bool = False,
    only: Collection[str] | None = None,
    data: Data | None = None,
    recipe: Recipe | None = None,
    progress: Progress | None = None,
) -> BenchResult:
    """Median latencies of float32 and int8 programs, measured in turns.

    data: samples, of which the first make the inputs, prepared by a recipe; random inputs without. The int8
    programs are left out for a float model, the float32 ones for a model that was quantized already. only:
    the programs by name, such as QGLOW_INT8 and RIVALS; None for all. Raises UsageError if OpenVINO is asked
    for and not installed, DataError for data that does not fit.
    """
    threads = choose_threads(options.threads)
    options = replace(options, threads=threads)
    parts = model if isinstance(model, QuantizedParts) else None
    original = float_model(model) if isinstance(model, QuantizedParts) else model
    inputs = _inputs(model, data, recipe)
    files: dict[str, Path | bytes] = {} if original.is_quantized else {"float32": loaded_file(original)}
    fed = {"float32": inputs}
    contenders: dict[str, Contender] = {}
    if parts is not None:
        integers = {name: stored(inputs[name], kind) for name, kind in parts.inputs.items()}
        files["int8"] = loaded_file(original) if original.is_quantized else parts.qdq_model()
        fed["int8"] = inputs_for_file(files["int8"], inputs, parts)
        if _wanted(QGLOW_INT8, only):
            contenders[QGLOW_INT8] = _of_graph(parts.int8, options, integers)
    if not original.is_quantized and _wanted("qglow float32", only):
        contenders["qglow float32"] = _of_graph(original.graph, options, inputs)
    for kind, file in files.items():
        if _wanted(RIVALS[kind], only):
            contenders[RIVALS[kind]] = of_onnxruntime(file, fed[kind], threads)
    for kind, file in files.items() if openvino else ():
        contenders[f"OpenVINO {kind}"] = of_openvino(file, fed[kind], threads)
        if kind == "float32" and has_bfloat16():
            contenders["OpenVINO bfloat16"] = of_openvino(file, fed[kind], threads, "bf16")
    result = bench(contenders, alternations, advance=start(progress, alternations))
    graphs = {"qglow float32": original.graph} | ({} if parts is None else {QGLOW_INT8: parts.int8})
    hosted = {
        name: hosted_time(graph, contenders[name]) for name, graph in graphs.items() if name in contenders
    }
    return replace(
        result, threads=threads, hosted={n: time for n, time in hosted.items() if time is not None}
    )


def measure_hosted_time(parts: QuantizedParts, options: CompileOptions) -> HostedTime | None:
    """Measure the share of the int8 program's time in onnxruntime, on random inputs.

    None for a model without nodes there. Raises DataError where such a node refuses these inputs.
    """
    if not hosted_nodes(parts.int8):
        return None
    inputs = random_inputs(real_types(parts.inputs))
    integers = {name: stored(inputs[name], kind) for name, kind in parts.inputs.items()}
    return hosted_time(parts.int8, _of_graph(parts.int8, options, integers))


@contextmanager
def advising_data(data: Data | None) -> Iterator[None]:
    """Advise samples where random inputs are refused."""
    try:
        yield
    except DataError as error:
        if data is not None:
            raise
        raise DataError(f"{error}; they were drawn at random: name samples that fit (`data`)") from error


def _inputs(
    model: LoadedModel | QuantizedParts, data: Data | None, recipe: Recipe | None
) -> dict[str, Array]:
    """Inputs of a call: the first samples of data, the last one again where the batch has more, or random."""
    parts = model if isinstance(model, QuantizedParts) else None
    loaded = float_model(model) if isinstance(model, QuantizedParts) else model
    kinds = real_types(loaded.inputs)
    if data is None:
        return random_inputs(kinds)
    size = batch_of({name: kind.shape for name, kind in kinds.items()})
    recipe = recipe or (parts.recipe if parts is not None else None)
    opened = open_samples(data, kinds, recipe=recipe, missing=missing_inputs(loaded.graph))
    first = next(batches(opened, size), None)
    if first is None:
        raise DataError("data has no samples")
    whole = {name: a if first.whole else filled(a, size) for name, a in first.inputs.items()}
    return {name: as_taken(array, kinds[name].shape) for name, array in whole.items()}


def _wanted(name: str, only: Collection[str] | None) -> bool:
    return only is None or name in only


def _of_graph(graph: Graph, options: CompileOptions, inputs: Mapping[str, Array]) -> Contender:
    return of_executable(compile_graph(graph, options), inputs, graph.tail)


def measure_node_times(
    parts: QuantizedParts,
    isa: str | None = None,
    data: Data | None = None,
    recipe: Recipe | None = None,
) -> NodeTimes:
    """Measure every node in the int8 program, and in onnxruntime on the int8 file, on one thread.

    Inputs are as for `measure_latencies`. Raises UsageError for an ISA that the host lacks, DataError for
    data that does not fit.
    """
    original = float_model(parts)
    file = loaded_file(original) if original.is_quantized else parts.qdq_model()
    inputs = inputs_for_file(file, _inputs(parts, data, recipe), parts)
    target = capabilities.timed(select_target(isa))
    return measure_nodes(selected_program(parts.int8, isa), target, file, inputs)
