"""Steps of quantization that look at the calibration samples once more."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qglow.api.data import Data, Progress, open_samples, start
from qglow.core.errors import DataError, UsageError
from qglow.core.types import Array
from qglow.core.version import __version__
from qglow.graph.fingerprint import fingerprint
from qglow.graph.graph import Graph, Value
from qglow.numerics.quantize import quantize_by
from qglow.profiling.datasets import DataSet
from qglow.profiling.samples import batches
from qglow.quantization.pipeline import QuantizedGraph
from qglow.quantization.reconstruction import round_weights
from qglow.quantization.reconstruction.rounding import rounded_nodes
from qglow.quantization.reconstruction.state import load_rounding
from qglow.recipe.schema import Recipe
from qglow.toolchain import CompileOptions
from qglow.toolchain.observation import observe


@dataclass(frozen=True)
class CalibrationSamples:
    """Samples to look at while quantizing: `data` as for `Model.profile`, `select` and `samples` too."""

    data: Data
    select: str | None = None
    samples: int | None = None


def reconstruct(
    result: QuantizedGraph,
    recipe: Recipe,
    calibration: Data | CalibrationSamples | None,
    options: CompileOptions,
    progress: Progress | None = None,
    state: Path | None = None,
) -> QuantizedGraph:
    """The int8 graph with what the recipe wants done from samples; the same graph where that is nothing.

    state: a file for what is done, so that the same call goes on from there. Raises UsageError where samples
    are needed and there are none, and for a budget or state of nothing, DataError where samples do not fit
    or are fewer than a batch, InputFileError for a state of something else.
    """
    if recipe.rounding == "nearest":
        if state is not None or recipe.rounding_budget is not None:
            raise UsageError(
                "--rounding-budget and --rounding-state are of --rounding gptq and adaround, not of nearest"
            )
        return result
    begun = time.monotonic()
    if calibration is None:
        raise UsageError(
            f"rounding {recipe.rounding} looks at the calibration samples: give them with "
            "--calibration-data, or choose --rounding nearest"
        )
    runs = CalibrationRuns.of(result.source, recipe, calibration)

    def tensors(graph: Graph, values: Sequence[Value]) -> Iterator[Mapping[Value, Array]]:
        return observe(graph, values, (_typed(graph, inputs) for inputs in runs), options)

    advance = start(progress, len(rounded_nodes(result.graph)))
    samples, budget = len(runs) * runs.batch, recipe.rounding_budget
    return round_weights(
        result,
        tensors,
        samples,
        advance=advance,
        learn=recipe.rounding == "adaround",
        out_of_time=lambda: budget is not None and time.monotonic() - begun >= budget,
        state=None if state is None else load_rounding(state, _about(result, recipe, runs)),
    )


def _about(result: QuantizedGraph, recipe: Recipe, runs: CalibrationRuns) -> dict[str, str]:
    """All that the integers depend on."""
    return {
        "version of qglow": __version__,
        "model": fingerprint(result.source),
        "int8 form of it": fingerprint(result.graph),
        "choice of correct_bias": str(recipe.correct_bias),
        "calibration data": f"{runs.dataset.digest().hex} {len(runs) * runs.batch}",
    }


@dataclass(frozen=True)
class CalibrationRuns:
    """Inputs of a graph for each whole batch of calibration samples, read anew each time."""

    dataset: DataSet
    batch: int
    count: int

    @staticmethod
    def of(graph: Graph, recipe: Recipe, calibration: Data | CalibrationSamples) -> CalibrationRuns:
        """Those of a float graph. Raises DataError where the samples do not fit or are less than a batch."""
        if not isinstance(calibration, CalibrationSamples):
            calibration = CalibrationSamples(calibration)
        inputs = {value.name: value.type for value in graph.inputs}
        dataset = open_samples(
            calibration.data, inputs, recipe=recipe, select=calibration.select, samples=calibration.samples
        )
        batch = graph.inputs[0].type.shape[0]
        size = sum(1 for _ in dataset) if dataset.size is None else dataset.size
        if size < batch:
            raise DataError(f"there are fewer calibration samples than one batch of {batch}")
        return CalibrationRuns(dataset, batch, size // batch)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[dict[str, Array]]:
        for samples in batches(self.dataset, self.batch):
            if len(samples) == self.batch:
                yield samples.inputs

    def spread(self, wanted: int) -> list[dict[str, Array]]:
        """At most so many runs, evenly over all of them, in memory."""
        kept = min(wanted, self.count)
        indices = {index * self.count // kept for index in range(kept)}
        return [inputs for index, inputs in enumerate(self) if index in indices]


def _typed(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Real inputs in the types that the graph has for them."""
    found = {}
    for value in graph.inputs:
        array = inputs[value.name]
        quantization = value.type.quantization
        found[value.name] = array if quantization is None else quantize_by(array, quantization)
    return found
