"""Data for a model: what one sample of each input has to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from qglow.core.types import TensorType
from qglow.importer import read_tensor
from qglow.profiling.datasets import DataSet, open_data
from qglow.profiling.progress import Advance
from qglow.profiling.samples import InputSpec
from qglow.recipe.schema import Recipe

Progress = Callable[[int | None], Advance]
"""Given the number of steps (None where unknown), returns what is told how many more are done."""


def start(progress: Progress | None, total: int | None) -> Advance:
    """The function to tell about steps done, which does nothing without `progress`."""
    return progress(total) if progress is not None else lambda done: None


def open_samples(
    data: str | Path,
    inputs: Mapping[str, TensorType],
    *,
    recipe: Recipe | None = None,
    select: str | None = None,
    samples: int | None = None,
    labels: Path | None = None,
) -> DataSet:
    """Samples for a model with these inputs, whose first dimension is the batch.

    Raises DataError for data that does not fit, UsageError for wrong options.
    """
    specs = {name: InputSpec(kind.shape[1:], np.dtype(kind.element.dtype)) for name, kind in inputs.items()}
    return open_data(
        data,
        specs,
        recipe=recipe,
        select=select,
        samples=samples,
        labels=labels,
        read_tensor=read_tensor,
    )
