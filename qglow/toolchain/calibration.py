"""Calibration samples as whole batches, for the steps of quantization that run programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from qglow.core.batch import batch_of
from qglow.core.errors import DataError
from qglow.core.types import Array
from qglow.graph.graph import Graph
from qglow.profiling.datasets import DataSet
from qglow.profiling.samples import batches
from qglow.recipe.schema import Recipe
from qglow.toolchain.samples import Data, open_samples


@dataclass(frozen=True)
class CalibrationSamples:
    """Samples to use while quantizing. `data`, `select` and `samples` are as for `Model.profile`."""

    data: Data
    select: str | None = None
    samples: int | None = None

    @staticmethod
    def of(data: Data | CalibrationSamples) -> CalibrationSamples:
        """All samples of `data`; samples that are selected already stay as they are."""
        return data if isinstance(data, CalibrationSamples) else CalibrationSamples(data)


@dataclass(frozen=True)
class CalibrationRuns:
    """Inputs of a graph for every whole batch of the samples; each iteration reads them again."""

    dataset: DataSet
    batch: int
    count: int

    @staticmethod
    def of(graph: Graph, recipe: Recipe, calibration: Data | CalibrationSamples) -> CalibrationRuns:
        """Open samples for a float graph. Raises DataError if they do not fit or do not fill a batch."""
        calibration = CalibrationSamples.of(calibration)
        inputs = {value.name: value.type for value in graph.inputs}
        dataset = open_samples(
            calibration.data, inputs, recipe=recipe, select=calibration.select, samples=calibration.samples
        )
        batch = batch_of({name: kind.shape for name, kind in inputs.items()})
        if batch > 1 and next(iter(dataset)).whole:
            batch = 1
        size = sum(1 for _ in dataset) if dataset.size is None else dataset.size
        if size < batch:
            raise DataError(f"there are fewer calibration samples than one batch of {batch}")
        return CalibrationRuns(dataset, batch, size // batch)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[dict[str, Array]]:
        for samples in batches(self.dataset, self.batch):
            if samples.fills(self.batch):
                yield samples.inputs

    def spread(self, wanted: int) -> list[dict[str, Array]]:
        """At most `wanted` batches, spread evenly over all of them, in memory."""
        kept = min(wanted, self.count)
        indices = {index * self.count // kept for index in range(kept)}
        return [inputs for index, inputs in enumerate(self) if index in indices]
