"""Opening data for a model: samples that fit its inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qglow.core.batch import may_be_batch, sample_shapes
from qglow.core.errors import DataError, UsageError
from qglow.core.types import Array, Dimension, ElementType, Shape, TensorType
from qglow.profiling.datasets import DataSet, open_data, parse_selection
from qglow.profiling.items import ItemSource, held_items, to_array
from qglow.profiling.labels import check_label_array
from qglow.profiling.samples import InputSpec, InputSpecs, are_inputs, check_counts
from qglow.profiling.sources import ArraySource, SampleSource
from qglow.recipe.schema import Recipe

Data = str | Path | Mapping[str, Array] | Array | Iterable[object] | Callable[[], Iterable[object]]
"""A path, "package.module:function", arrays by input name with samples along their first axis, one such
array, a list, generator or loader of samples or batches, or a function that gives one for every pass."""


def open_samples(
    data: Data,
    inputs: Mapping[str, TensorType],
    *,
    recipe: Recipe | None = None,
    select: str | None = None,
    samples: int | None = None,
    labels: str | Path | None = None,
    missing: Collection[str] = (),
) -> DataSet:
    """Open samples for a model with these inputs, whose first dimension is the batch (core.batch).

    missing: inputs in which NaN stands for what is missing.

    Raises DataError for data that does not fit, UsageError for wrong options.
    """
    return open_specified(
        data, input_specs(inputs, missing), recipe=recipe, select=select, samples=samples, labels=labels
    )


def input_specs(inputs: Mapping[str, TensorType], missing: Collection[str] = ()) -> InputSpecs:
    """Forms of one sample for inputs of these types, of which `missing` may have NaN."""
    shapes = sample_shapes({name: kind.shape for name, kind in inputs.items()})
    return {
        name: InputSpec(
            shapes[name],
            kind.element.dtype,
            None if shapes[name] == kind.shape else kind.shape,
            name in missing,
        )
        for name, kind in inputs.items()
    }


@dataclass(frozen=True)
class FreeInputs:
    """Inputs of a model with free dimensions: forms of one sample, names of those with a batch axis."""

    specs: InputSpecs
    batched: frozenset[str]

    @staticmethod
    def of(
        dimensions: Mapping[str, Sequence[Dimension] | None],
        elements: Mapping[str, ElementType],
        missing: Collection[str] = (),
    ) -> FreeInputs:
        """Inputs as a file declares them; a first dimension that may be one of samples is the batch.

        missing: those that may have NaN.

        Raises DataError for an input without a shape.
        """
        specs: dict[str, InputSpec] = {}
        batched = set()
        for name, sizes in dimensions.items():
            if sizes is None:
                raise DataError(f"input '{name}' declares no shape; give one (`shapes`)")
            if may_be_batch(sizes):
                batched.add(name)
            kept = tuple(size if isinstance(size, int) else None for size in sizes[name in batched :])
            whole = (1, *kept) if name in batched else None
            specs[name] = InputSpec(kept, elements[name].dtype, whole, name in missing)
        return FreeInputs(specs, frozenset(batched))

    def shapes(self, sample: Mapping[str, Shape]) -> dict[str, Shape]:
        """Shapes of inputs that hold one sample of these shapes."""
        return {name: (1, *shape) if name in self.batched else shape for name, shape in sample.items()}


def open_specified(
    data: Data,
    specs: InputSpecs,
    *,
    recipe: Recipe | None = None,
    select: str | None = None,
    samples: int | None = None,
    labels: str | Path | None = None,
) -> DataSet:
    """Open samples of these forms. Raises the errors of `open_samples`, and DataError for no forms."""
    if not specs:
        raise DataError("the model has no inputs that data could be for: all are constants, or it has none")
    if not isinstance(data, str | Path):
        if labels is not None:
            raise UsageError(
                "labels are for images and files; give those of arrays as 'label'", field="labels"
            )
        if samples is not None and samples < 1:
            raise UsageError(f"samples {samples}: at least 1", field="samples")
        selection = parse_selection(select)
        source = _given(data, specs, recipe or Recipe(), samples if select is None else None)
        return DataSet(data_name(data), source, specs, selection, samples)
    return open_data(
        data,
        specs,
        recipe=recipe,
        select=select,
        samples=samples,
        labels=None if labels is None else Path(labels),
        read_tensor=_read_tensor,
    )


def _read_tensor(path: Path) -> Array:
    from qglow.importer import read_tensor  # needs onnx

    return read_tensor(path)


def _given(data: Data, specs: InputSpecs, recipe: Recipe, most: int | None) -> SampleSource:
    """Open what Python has in memory, or makes; of an iterator at most `most` items are read."""
    ignored = recipe.data.ignore_label
    if isinstance(data, Mapping):
        return _arrays(data, specs, recipe)
    if hasattr(data, "__array__"):
        name, *others = specs
        if others:
            raise DataError(
                f"data: one array, but the model takes {list(specs)}: give a dict of arrays by name"
            )
        array = to_array(data, "data")
        spec = specs[name]
        alone = array.ndim <= len(spec.shape) or are_inputs({name: array}, specs)
        rows = array[None] if alone else array
        return _arrays({name: rows}, {name: specs[name]}, recipe)
    if isinstance(data, Iterator):
        held = held_items(data, most)
        return ItemSource("data", lambda: held, specs, ignored)
    if isinstance(data, Iterable):
        return ItemSource("data", lambda: data, specs, ignored)
    if callable(data):
        return ItemSource(getattr(data, "__name__", "data"), data, specs, ignored)
    raise UsageError(
        f"data {data!r:.60}: give a path, arrays by input name, a list or loader of samples, or a function",
        field="data",
    )


def _arrays(data: Mapping[str, Array], specs: InputSpecs, recipe: Recipe) -> ArraySource:
    missing = [name for name in specs if name not in data]
    if missing:
        raise DataError(f"no array for input '{missing[0]}': there are {', '.join(data) or 'none'}")
    arrays = {name: to_array(data[name], f"data['{name}']") for name in specs}
    if any(array.ndim == 0 for array in arrays.values()):
        raise DataError("an array without axes holds no samples; give one with samples along its first axis")
    check_counts("arrays", {name: array.shape for name, array in arrays.items()}, specs)
    labels = None if "label" in specs else data.get("label")
    count = len(next(iter(arrays.values())))
    if labels is not None:
        labels = check_label_array(np.asarray(labels), count, "label")
    return ArraySource("arrays", arrays, labels, recipe.preprocessing, recipe.data.ignore_label)


def data_name(data: Data) -> str:
    """The name of the data in reports."""
    if isinstance(data, str | Path):
        return str(data)
    return "arrays" if isinstance(data, Mapping) or hasattr(data, "__array__") else "data"
