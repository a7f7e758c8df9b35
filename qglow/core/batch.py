"""The batch of a model: the first dimension that all of its inputs have in common.

A model whose inputs have none takes one sample a run: inputs of extent 1 along the first axis have a batch of
1 there, and all others, such as states and numbers without axes, are whole in every sample.

Shapes alone do not tell whether an input [3, H, W] is a batch of three or one image, so the data tells:
samples with an axis less than the inputs lie along a batch axis, samples with as many axes are inputs, one
a run. Where sizes are free, the file may name what its dimensions count, as [steps, batch, 40] does: the
first dimension of such an input is not one of samples.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from qglow.core.types import Array, Dimension, Shape

_NO_SAMPLES = re.compile(
    r"seq|time|step|frame|len|token|word|char|phone|point|node|edge|height|width|channel"
)
"""What names of dimensions hold that count something else than samples."""
_BATCH = ("n", "b")
"""Letters that a batch goes by."""
_MADE_UP = re.compile(r"_dynamic_axes_\d+$|_dim_\d+$")
"""Ends of names that exporters make of the input's where nobody has named a dimension."""


def common_batch(shapes: Mapping[str, Shape]) -> int | None:
    """The common first dimension of all inputs; None where there is none, or where it is 0."""
    sizes = {shape[0] if shape else 0 for shape in shapes.values()}
    return sizes.pop() or None if len(sizes) == 1 else None


def batch_of(shapes: Mapping[str, Shape]) -> int:
    """Samples that a model with inputs of these shapes takes at once."""
    return common_batch(shapes) or 1


def sample_shapes(shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Shapes of one sample of every input, without the batch axis where there is one."""
    batch = batch_of(shapes)
    return {name: shape[1:] if shape and shape[0] == batch else shape for name, shape in shapes.items()}


def may_be_batch(dimensions: Sequence[Dimension]) -> bool:
    """Whether the first dimension of an input as a file declares it can be one of samples.

    It is 1 or free, has no name of something else, and no other one is named after a batch; the name may be
    one letter, as in [T, N, 40].

    >>> may_be_batch(["batch", "steps", 40]), may_be_batch(["steps", "batch", 40]), may_be_batch([None, 3])
    (True, False, True)
    """
    if not dimensions or (isinstance(dimensions[0], int) and dimensions[0] != 1):
        return False
    first, *others = (_name(dimension) for dimension in dimensions)
    if "batch" in first or any("batch" in other for other in others):
        return "batch" in first
    if len(first) == 1:
        return first in _BATCH or (first != "t" and not any(other in _BATCH for other in others))
    # The samples of [samples] alone are those of a signal.
    return not (_NO_SAMPLES.search(first) or (not others and "sample" in first))


def is_named_batch(dimensions: Sequence[Dimension]) -> bool:
    """Whether the first dimension of an input has the name of a batch."""
    name = _name(dimensions[0]) if dimensions else ""
    return "batch" in name or name in _BATCH


def _name(dimension: Dimension) -> str:
    """The name that somebody gave a dimension, in small letters; "" where nobody did."""
    named = isinstance(dimension, str) and not _MADE_UP.search(dimension)
    return str(dimension).lower() if named else ""


def are_whole(samples: Mapping[str, Shape], inputs: Mapping[str, Shape]) -> bool:
    """Whether samples of these shapes are inputs of a model whose shapes have room for a batch of several."""
    several = (common_batch(inputs) or 1) > 1
    return several and all(len(samples[name]) == len(shape) for name, shape in inputs.items())


def as_taken(array: Array, shape: Shape) -> Array:
    """An array in the shape that an input takes: one sample loses the axis that samples are stacked along."""
    return array.reshape(shape) if array.shape == (1, *shape) else array
