"""The batch of a model: the first dimension that all of its inputs have in common.

A model whose inputs have none takes one sample a run: inputs of extent 1 along the first axis have a batch of
1 there, and all others, such as states and numbers without axes, are whole in every sample.

Shapes alone do not tell whether an input [3, H, W] is a batch of three or one image, so the data tells:
samples with an axis less than the inputs lie along a batch axis, samples with as many axes are inputs, one
a run.
"""

from __future__ import annotations

from collections.abc import Mapping

from qglow.core.types import Array, Shape


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


def are_whole(samples: Mapping[str, Shape], inputs: Mapping[str, Shape]) -> bool:
    """Whether samples of these shapes are inputs of a model whose shapes have room for a batch of several."""
    several = (common_batch(inputs) or 1) > 1
    return several and all(len(samples[name]) == len(shape) for name, shape in inputs.items())


def as_taken(array: Array, shape: Shape) -> Array:
    """An array in the shape that an input takes: one sample loses the axis that samples are stacked along."""
    return array.reshape(shape) if array.shape == (1, *shape) else array
