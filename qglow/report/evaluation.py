"""Int8 models run over data: against onnxruntime at their outputs, and node by node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from qglow.core.errors import DataError, UnboundError, UnsupportedError, UsageError
from qglow.core.progress import Advance, Progress, start
from qglow.core.types import Array
from qglow.graph.missing import missing_inputs
from qglow.instructions.missing import missing_inputs as missing_numbers
from qglow.profiling.datasets import DataSet
from qglow.profiling.samples import batches
from qglow.recipe.schema import Recipe
from qglow.report.comparison import compare
from qglow.report.comparison_result import FLOAT, INT8, QDQ, Comparison
from qglow.report.each_shape import EachShape, OpenShapes, of_own_shapes
from qglow.report.layer_report import LayerReport
from qglow.report.layers import compare_layers
from qglow.report.oracle import OnnxruntimeModel
from qglow.report.parts import QuantizedParts
from qglow.report.runner import RealInterface, Runner, batch_size, real_types, run_samples, stored
from qglow.report.score_axes import score_axes
from qglow.report.task_metric import TaskMetric, open_metric
from qglow.report.without_tail import float_file, qdq_file
from qglow.runtime.cores import choose_threads
from qglow.runtime.executable import Executable
from qglow.runtime.streaming import StreamingExecutable
from qglow.toolchain import CompileOptions, compile_graph
from qglow.toolchain.emulated import compile_or_emulate
from qglow.toolchain.samples import Data, FreeInputs, open_samples, open_specified


def open_evaluation_data(
    parts: QuantizedParts,
    data: Data,
    recipe: Recipe | None = None,
    select: str | None = None,
    samples: int | None = None,
    labels: str | Path | None = None,
    shapes: OpenShapes | None = None,
) -> DataSet:
    """Samples of reals for a quantized model, prepared by its own recipe unless another is given.

    shapes: those that samples may have beside the profile's. Raises DataError for data that does not fit,
    UsageError for wrong options.
    """
    recipe = recipe or parts.recipe
    if shapes is not None:
        return open_specified(
            data, shapes.inputs.specs, recipe=recipe, select=select, samples=samples, labels=labels
        )
    return open_samples(
        data,
        real_types(parts.inputs),
        recipe=recipe,
        select=select,
        samples=samples,
        labels=labels,
        missing=missing_inputs(parts.int8),
    )


def run_over_data(
    program: Executable,
    data: Data,
    *,
    recipe: Recipe | None = None,
    select: str | None = None,
    samples: int | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[str, dict[str, Array]]]:
    """Name and outputs of every sample, one after the other: reals without a batch axis.

    An output without a batch axis is whole where the batch is 1, and so is one whose shape data decides.
    Samples of a program that keeps states are one stream. Where dimensions are free and the program has no
    shapes of its own, samples may differ in shape. Raises DataError for data that does not fit the program,
    and for such an output of a larger batch, UsageError for a program that keeps states, or has an output
    whose shape data decides, and takes more than one sample at once.
    """
    try:
        yield from _run_over(program, data, recipe, select, samples, progress)
    except DataError as error:
        if program.fixed_because:
            raise DataError(f"{error}; {program.fixed_because}") from error
        raise


def _run_over(
    program: Executable,
    data: Data,
    recipe: Recipe | None,
    select: str | None,
    samples: int | None,
    progress: Progress | None,
) -> Iterator[tuple[str, dict[str, Array]]]:
    """Name and outputs of every sample, as `run_over_data`."""
    try:
        kinds = program.inputs
    except UnboundError as unbound:
        dimensions, elements = dict(unbound.dimensions), dict(unbound.elements)
    else:
        several = program.free_dimensions if not any(k.is_quantized for k in kinds.values()) else None
        dimensions, elements = dict(several or {}), {name: kind.element for name, kind in kinds.items()}
    if dimensions:
        free = FreeInputs.of(dimensions, elements)
        specified = open_specified(data, free.specs, recipe=recipe, select=select, samples=samples)
        yield from _run_one_by_one(program, specified, free, start(progress, specified.size))
        return
    if isinstance(program, StreamingExecutable) and batch_size(program) > 1:
        raise UsageError(
            f"samples of a stream run one after the other, but the program takes {batch_size(program)} at "
            "once: bind a batch of 1"
        )
    whole = program.untyped_outputs
    if whole and batch_size(program) > 1:
        raise UsageError(
            f"data decides the shape of output '{whole[0]}', which cannot be cut into {batch_size(program)} "
            "samples: bind a batch of 1"
        )
    runner = RealInterface(program, kinds, program.outputs)
    opened = open_samples(
        data, runner.inputs, recipe=recipe, select=select, samples=samples, missing=runner.inputs
    )
    advance = start(progress, opened.size)
    for batch in batches(opened, batch_size(runner)):
        outputs = run_samples(runner, batch.inputs)
        _require_numbers(program, batch.keys, batch.inputs, outputs)
        for row, key in enumerate(batch.keys):
            yield (
                key,
                {n: a if n in whole else _of_sample(n, a, row, len(batch)) for n, a in outputs.items()},
            )
        advance(len(batch))


def _run_one_by_one(
    program: Executable, opened: DataSet, free: FreeInputs, advance: Advance
) -> Iterator[tuple[str, dict[str, Array]]]:
    """Name and outputs of every sample, each at its own shape."""
    for sample in opened:
        inputs = {name: a[None] if name in free.batched else a for name, a in sample.inputs.items()}
        outputs = program(inputs)
        whole = program.untyped_outputs
        yield sample.key, {n: a if n in whole else _of_sample(n, a, 0, 1) for n, a in outputs.items()}
        advance(1)


def _require_numbers(
    program: Executable, keys: Sequence[str], inputs: Mapping[str, Array], outputs: Mapping[str, Array]
) -> None:
    """Raise DataError where an input of these samples has NaN, and the program no number in its place."""
    for name, array in inputs.items():
        if not _has_nan(array):
            continue
        reached = next((output for output, result in outputs.items() if _has_nan(result)), None)
        if reached is None and name in missing_numbers(program.program):
            continue
        row = next((row for row in range(len(keys)) if _has_nan(array[row : row + 1])), 0)
        what = "" if reached is None else f", which output '{reached}' passes on"
        advice = "leave the sample out (`select`) or repair the data"
        raise DataError(f"{keys[row]}: input '{name}' holds NaN{what}; {advice}")


def _has_nan(array: Array) -> bool:
    return array.dtype.kind == "f" and bool(np.isnan(array).any())


def _of_sample(name: str, array: Array, row: int, samples: int) -> Array:
    """The part of an output of some samples that is one sample's: a row, or as many as each of them has."""
    if array.ndim and array.shape[0] == samples:
        return np.asarray(array[row])
    if samples == 1:
        return array
    if not array.ndim or array.shape[0] % samples:
        raise DataError(f"output '{name}' of shape {list(array.shape)} has no batch axis: bind a batch of 1")
    rows = array.shape[0] // samples
    return array[row * rows : (row + 1) * rows]


def compare_outputs(
    parts: QuantizedParts,
    opened: DataSet,
    *,
    metric: str | Callable[..., float] | TaskMetric | None = None,
    options: CompileOptions | None = None,
    program: Executable | None = None,
    shapes: OpenShapes | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Outputs of the compiled int8 model against the float and the QDQ model in onnxruntime.

    All run on as many threads as the options say, and onnxruntime without sums that saturate on some
    processors: what is compared does not depend on the processor. Where the model was quantized already,
    that very file takes the place of the float model. Instead of outputs whose shapes data decides, what goes
    into the nodes that compute them is compared, and given to `metric`. program: takes the place of the
    compiled model. A target that the host cannot run is emulated. shapes: those that samples may have beside
    the profile's.

    Raises ModelError if the float model's file is missing or has changed, UsageError for a metric that
    does not exist or fails.
    """
    if not parts.outputs:
        raise UsageError("the whole model runs in onnxruntime, so that there is nothing to compare")
    options = options or CompileOptions()
    measured = None if metric is None else open_metric(metric)
    threads = choose_threads(options.threads)
    options = CompileOptions(isa=options.isa, threads=threads)
    reference = OnnxruntimeModel(
        float_file(parts),
        shapes=parts.shapes,
        other_sizes=shapes is not None,
        threads=threads,
        exact_sums=True,
    )
    runners = _runners(parts, reference, options, program)
    if shapes is not None:
        wide = partial(_runners_up_to, shapes, parts, reference, options)
        each = EachShape(parts, shapes, lambda own: _runners(own, reference, options), runners, wide)
        runners = {name: each.runner(name) for name in runners}
    return compare(
        runners.pop(INT8),
        runners.pop(FLOAT),
        opened,
        rivals=runners,
        metric=measured,
        scores=score_axes(parts.real, reference.open_output_axes),
        advance=start(progress, opened.size),
    )


def _runners(
    parts: QuantizedParts,
    reference: OnnxruntimeModel,
    options: CompileOptions,
    program: Executable | None = None,
) -> dict[str, Runner]:
    """The int8 program, the float model and the QDQ model by name, for the shapes of the graph."""
    if program is None:
        program = compile_or_emulate(parts.int8, options)
    else:
        _check_interface(program, parts)
    qdq = OnnxruntimeModel(qdq_file(parts), threads=choose_threads(options.threads), exact_sums=True)
    return _named(program, reference, qdq, parts)


def _runners_up_to(
    shapes: OpenShapes,
    parts: QuantizedParts,
    reference: OnnxruntimeModel,
    options: CompileOptions,
    bounds: Mapping[str, int],
) -> dict[str, Runner]:
    """The same for all sizes up to bounds. Raises UnsupportedError where nothing takes all sizes."""
    if parts.int8.tail is not None:
        raise UnsupportedError("what onnxruntime computes behind the int8 model goes by shapes")
    program = shapes.bounded(bounds, options)
    threads = choose_threads(options.threads)
    qdq = OnnxruntimeModel(
        shapes.exported(), shapes=parts.shapes, other_sizes=True, threads=threads, exact_sums=True
    )
    return _named(program, reference, qdq, parts)


def _named(
    program: Executable, reference: OnnxruntimeModel, qdq: OnnxruntimeModel, parts: QuantizedParts
) -> dict[str, Runner]:
    subject = RealInterface(program, parts.inputs, parts.outputs)
    return {INT8: subject, FLOAT: _of_reals(reference, parts), QDQ: _of_reals(qdq, parts)}


def _check_interface(program: Executable, parts: QuantizedParts) -> None:
    for given, wanted in ((program.inputs, parts.inputs), (program.outputs, parts.outputs)):
        if given != wanted:
            found, known = (", ".join(f"{name}: {kind}" for name, kind in k.items()) for k in (given, wanted))
            raise UsageError(f"the program is of another model: it has {found}; the model has {known}")


def compare_nodes(
    parts: QuantizedParts,
    opened: DataSet,
    *,
    options: CompileOptions | None = None,
    shapes: OpenShapes | None = None,
    progress: Progress | None = None,
) -> LayerReport:
    """Errors of every int8 node: alone, accumulated, and against onnxruntime on the same integers.

    shapes: those that samples may have beside the profile's; such samples are left out.
    """
    options = options or CompileOptions()
    observed = compile_graph(
        parts.int8, CompileOptions(isa=options.isa, threads=options.threads, observe=True)
    )
    advance = start(progress, opened.size)
    samples = opened if shapes is None else of_own_shapes(opened, shapes, parts)
    return compare_layers(parts.real, parts.int8, samples, observed=observed, advance=advance)


def inputs_for_file(
    file: Path | bytes, reals: Mapping[str, Array], parts: QuantizedParts
) -> dict[str, Array]:
    """Inputs as onnxruntime wants them for a file of the model, integers where it takes those."""
    shapes = {name: array.shape for name, array in reals.items()}
    integers = OnnxruntimeModel(file, shapes=shapes).integers
    kinds = parts.inputs
    return {n: stored(a, kinds[n], integers[n]) if n in integers else a for n, a in reals.items()}


def _of_reals(program: OnnxruntimeModel, parts: QuantizedParts) -> Runner:
    """The program seen as one of reals; integers at its ends have the parameters of the model."""
    integers = program.integers
    if not integers:
        return program
    inputs, outputs = (
        {name: kind if name in integers else real_types({name: kind})[name] for name, kind in side.items()}
        for side in (parts.inputs, parts.outputs)
    )
    unsigned = [name for name, is_uint8 in integers.items() if is_uint8]
    return RealInterface(program, inputs, outputs, unsigned=unsigned)
