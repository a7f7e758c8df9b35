"""Profiles of a loaded model: data is opened, an engine chosen, and values counted as they are seen."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from qglow.core.errors import UnboundError, UndecidedError, UsageError
from qglow.core.jobs import Jobs
from qglow.core.progress import Progress, start
from qglow.core.types import Shape
from qglow.graph.graph import Graph
from qglow.graph.missing import missing_inputs
from qglow.profiling.datasets import DataSet
from qglow.profiling.engine import Engine
from qglow.profiling.profile import Profile
from qglow.profiling.profiler import profile
from qglow.profiling.shards import ShardedProfile, profile_shards
from qglow.recipe.data import KEPT
from qglow.recipe.schema import Recipe
from qglow.toolchain.calibration import CalibrationSamples
from qglow.toolchain.engine import CompiledEngine
from qglow.toolchain.given_by_samples import given_by_samples
from qglow.toolchain.loaded import LoadedModel
from qglow.toolchain.options import CompileOptions
from qglow.toolchain.samples import FreeInputs, open_samples, open_specified
from qglow.toolchain.shapes import ModelAt, profile_shapes, profile_shapes_in_shards
from qglow.toolchain.spread import SpreadEngine, make_engine
from qglow.toolchain.undecided import UndecidedModel

ENGINES = ("compiled", "interpreter")


def profile_model(
    model: LoadedModel,
    data: CalibrationSamples,
    *,
    recipe: Recipe | None = None,
    batch_size: int | None = None,
    engine: str = "compiled",
    keep_samples: int = KEPT,
    options: CompileOptions | None = None,
    progress: Progress | None = None,
    jobs: Jobs | None = None,
) -> Profile:
    """Run a model over calibration data and count what every value looks like.

    batch_size: samples a run (default: the batch that the model has). engine: one of `ENGINES`.
    keep_samples: how many samples the profile keeps at most. jobs: where batches run (default: here); the
    profile is the same.

    Raises DataError for data that does not fit, UsageError for wrong options and for a model that is
    quantized already.
    """
    _require_float(model)
    if batch_size is not None and batch_size < 1:
        raise UsageError(f"batch_size {batch_size}: at least 1", field="batch_size")
    base = model.with_profiled_batch()
    opened = _open(base, data, recipe)
    return profile(
        base.graph,
        opened,
        _engine(base, engine, options, jobs),
        model=model.source,
        batch_size=batch_size or base.batch_size,
        preprocessing=None if recipe is None else recipe.preprocessing,
        keep_samples=keep_samples,
        advance=start(progress, opened.size),
    )


def profile_free_model(
    model: UndecidedModel,
    data: CalibrationSamples,
    *,
    recipe: Recipe | None = None,
    batch_size: int | None = None,
    engine: str = "compiled",
    keep_samples: int = KEPT,
    options: CompileOptions | None = None,
    progress: Progress | None = None,
    jobs: Jobs | None = None,
) -> Profile:
    """Profile a model with free dimensions, over samples whose shapes may differ; see `profile_model`.

    Inputs whose values decide shapes or parameters become constants where all samples have the same value.

    Raises UsageError also for a batch size other than 1, DataError for deciding values that differ.
    """
    if progress is not None:
        progress = functools.cache(progress)  # one display, whether samples are read once or again
    try:
        if batch_size not in (None, 1):
            raise UsageError(
                f"batch_size {batch_size}: shapes are free, so samples run one by one", field="batch_size"
            )
        bound, opened = _open_free(model, data, recipe)
        return profile_shapes(
            bound,
            opened,
            lambda loaded: _engine(loaded, engine, options, jobs),
            None if recipe is None else recipe.preprocessing,
            keep_samples,
            start(progress, opened.size),
        )
    except UndecidedError as missing:
        decided = given_by_samples(model, missing, data, recipe)
    profiled = profile_free_model if isinstance(decided, UndecidedModel) else profile_model
    return profiled(
        decided,  # type: ignore[arg-type]
        data,
        recipe=recipe,
        batch_size=batch_size,
        engine=engine,
        keep_samples=keep_samples,
        options=options,
        progress=progress,
        jobs=jobs,
    )


def _require_float(model: LoadedModel) -> None:
    if model.is_quantized:
        raise UsageError(f"{model.place} is quantized already: quantize takes it without a profile")


def profile_model_in_shards(
    model: LoadedModel,
    data: CalibrationSamples,
    recipe: Recipe,
    options: CompileOptions | None = None,
    progress: Progress | None = None,
) -> ShardedProfile:
    """Profile a model over parts of the data that are kept apart; the data is read once.

    Raises DataError for data that does not fit or is less than two runs, UsageError for a model that is
    quantized already.
    """
    if model.is_quantized:
        raise UsageError(f"{model.place} is quantized already: no data calibrates it")
    engine = CompiledEngine(model.graph_for_batch, options)
    opened = _open(model, data, recipe)
    advance, size = start(progress, opened.size), opened.size
    return profile_shards(
        model.graph, opened, engine, batch_size=model.batch_size, size=size, advance=advance
    )


def profile_free_model_in_shards(
    model: UndecidedModel,
    data: CalibrationSamples,
    recipe: Recipe,
    options: CompileOptions | None = None,
    progress: Progress | None = None,
) -> tuple[Graph, ShardedProfile]:
    """Profile a model with free dimensions over parts of the data, see `profile_model_in_shards`.

    Returns the graph of the shapes that most samples have too. Inputs whose values decide shapes or
    parameters become constants as in `profile_free_model`.
    """
    if progress is not None:
        progress = functools.cache(progress)
    try:
        bound, opened = _open_free(model, data, recipe)
        return profile_shapes_in_shards(
            bound,
            opened,
            lambda loaded: CompiledEngine(loaded.graph_for_batch, options),
            start(progress, opened.size),
        )
    except UndecidedError as missing:
        decided = given_by_samples(model, missing, data, recipe)
    if isinstance(decided, UndecidedModel):
        return profile_free_model_in_shards(decided, data, recipe, options, progress)
    return decided.graph, profile_model_in_shards(decided, data, recipe, options, progress)


def _open(model: LoadedModel, data: CalibrationSamples, recipe: Recipe | None) -> DataSet:
    """Samples for a model with static shapes."""
    return open_samples(
        data.data,
        model.inputs,
        recipe=recipe,
        select=data.select,
        samples=data.samples,
        missing=missing_inputs(model.graph),
    )


def _open_free(
    model: UndecidedModel, data: CalibrationSamples, recipe: Recipe | None
) -> tuple[ModelAt, DataSet]:
    """A model with free dimensions at shapes of a sample, and its samples."""
    if not isinstance(model.reason, UnboundError):
        raise model.refusal
    inputs = FreeInputs.of(model.reason.dimensions, model.reason.elements)
    opened = open_specified(data.data, inputs.specs, recipe=recipe, select=data.select, samples=data.samples)

    def bound(shapes: Mapping[str, Shape]) -> LoadedModel:
        found = model.at(inputs.shapes(shapes))
        _require_float(found)
        return found

    return bound, opened


def _engine(model: LoadedModel, name: str, options: CompileOptions | None, jobs: Jobs | None) -> Engine:
    if name not in ENGINES:
        raise UsageError(f"engine {name!r} is not one of {', '.join(ENGINES)}", field="engine")
    if jobs is not None:
        return SpreadEngine(jobs, model.graph_for_batch, name, options)
    return make_engine(model.graph_for_batch, name, options)
