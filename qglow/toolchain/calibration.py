"""Calibration samples as whole batches, for the steps of quantization that run programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from qglow.core.batch import batch_of, may_be_batch
from qglow.core.errors import DataError
from qglow.core.types import Array, Dimension, ElementType, Shape, TensorType
from qglow.graph.graph import Graph
from qglow.graph.missing import missing_inputs
from qglow.profiling.datasets import DataSet
from qglow.profiling.samples import batches
from qglow.recipe.schema import Recipe
from qglow.toolchain.sample_fit import Fit, listed_shapes
from qglow.toolchain.samples import Data, FreeInputs, input_specs, open_specified
from qglow.toolchain.shapes import commonest, shapes_of


@dataclass(frozen=True)
class CalibrationSamples:
    """Samples to use while quantizing. `data`, `select` and `samples` are as for `Model.profile`.

    dimensions: those of the inputs as the model's file declares them, for samples of several sizes.
    """

    data: Data
    select: str | None = None
    samples: int | None = None
    dimensions: Mapping[str, Sequence[Dimension] | None] | None = None

    @staticmethod
    def of(
        data: Data | CalibrationSamples,
        dimensions: Mapping[str, Sequence[Dimension] | None] | None = None,
    ) -> CalibrationSamples:
        """All samples of `data`; samples that are selected already stay so."""
        found = data if isinstance(data, CalibrationSamples) else CalibrationSamples(data)
        return found if dimensions is None else replace(found, dimensions=dimensions)

    def opened(
        self,
        inputs: Mapping[str, TensorType],
        recipe: Recipe,
        labels: str | Path | None = None,
        cuts: bool = True,
        missing: Collection[str] = (),
    ) -> tuple[DataSet, Fit | None]:
        """The samples for inputs of these types, and what makes them fit where dimensions are open.

        cuts: whether longer samples are cut. missing: inputs that may have NaN. Raises DataError for data
        that does not fit, also where none of the samples does.
        """
        declared = self._open_dimensions(inputs)
        chosen = partial(
            open_specified, recipe=recipe, select=self.select, samples=self.samples, labels=labels
        )
        if declared is None:
            return chosen(self.data, input_specs(inputs, missing)), None
        free = FreeInputs.of(declared, {name: kind.element for name, kind in inputs.items()}, missing)
        fit = Fit.of({name: kind.shape for name, kind in inputs.items()}, declared, cuts)
        dataset = replace(chosen(self.data, free.specs), fit=fit)
        if not any(True for _ in dataset):
            raise DataError(
                f"{dataset.name}: no sample has the sizes that the model is quantized for, "
                f"{listed_shapes(fit.wanted)}: profile these samples, or give their sizes (`shapes`)"
            )
        return dataset, fit

    def common_shapes(self, inputs: Mapping[str, ElementType], recipe: Recipe) -> dict[str, Shape]:
        """Shapes of inputs for the sizes that most samples have, the largest of equally frequent ones."""
        assert self.dimensions is not None
        free = FreeInputs.of(self.dimensions, inputs)
        samples = open_specified(
            self.data, free.specs, recipe=recipe, select=self.select, samples=self.samples
        )
        return free.shapes(dict(commonest(Counter(map(shapes_of, samples)))))

    def _open_dimensions(self, inputs: Mapping[str, TensorType]) -> dict[str, Sequence[Dimension]] | None:
        """Declared dimensions of the inputs where more than the batch is open."""
        declared = {name: (self.dimensions or {}).get(name) for name in inputs}
        known = {name: sizes for name, sizes in declared.items() if sizes is not None}
        is_open = any(
            not isinstance(size, int) for sizes in known.values() for size in sizes[may_be_batch(sizes) :]
        )
        return known if is_open and len(known) == len(declared) else None


@dataclass(frozen=True)
class CalibrationRuns:
    """Inputs of a graph for every whole batch of the samples; each iteration reads them again.

    note: a sentence on samples of other sizes, "" where there are none.
    """

    dataset: DataSet
    batch: int
    count: int
    note: str = ""

    @staticmethod
    def of(graph: Graph, recipe: Recipe, calibration: Data | CalibrationSamples) -> CalibrationRuns:
        """Open samples for a float graph. Raises DataError if they do not fit or do not fill a batch."""
        calibration = CalibrationSamples.of(calibration)
        inputs = {value.name: value.type for value in graph.inputs}
        shapes = {name: kind.shape for name, kind in inputs.items()}
        dataset, fit = calibration.opened(inputs, recipe, missing=missing_inputs(graph))
        size = sum(1 for _ in dataset) if dataset.size is None else dataset.size
        batch = batch_of(shapes)
        if batch > 1 and next(iter(dataset)).whole:
            batch = 1
        if size < batch:
            raise DataError(f"there are fewer calibration samples than one batch of {batch}")
        return CalibrationRuns(dataset, batch, size // batch, "" if fit is None else fit.told())

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
