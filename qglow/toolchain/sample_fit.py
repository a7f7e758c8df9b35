"""Samples of any sizes, made to fit a graph of fixed ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from qglow.core.batch import are_whole, may_be_batch
from qglow.core.types import Array, Dimension, Shape
from qglow.profiling.samples import Sample


@dataclass
class Fit:
    """Makes samples of any sizes fit a graph: longer ones are cut, shorter ones left out.

    Cut is along the dimensions that all inputs have, such as the tokens of ids and masks, whose first ones
    are a shorter text; the first pixels of an image are a smaller one. wanted: shapes of a sample. inputs:
    those of the graph. along: axes that may be cut.
    """

    wanted: Mapping[str, Shape]
    inputs: Mapping[str, Shape]
    along: Mapping[str, frozenset[int]] = field(default_factory=dict)
    _cut: set[str] = field(default_factory=set)
    _left_out: set[str] = field(default_factory=set)

    @staticmethod
    def of(inputs: Mapping[str, Shape], declared: Mapping[str, Sequence[Dimension]], cuts: bool) -> Fit:
        """Fit samples to a graph with these shapes of inputs."""
        behind = {name: may_be_batch(declared[name]) for name in inputs}
        sizes = {name: declared[name][behind[name] :] for name in inputs}
        named = [{size for size in one if isinstance(size, str)} for one in sizes.values()]
        shared: set[Dimension] = set()
        if cuts:
            shared |= set.intersection(*named) | ({None} if len(sizes) == 1 else set())
        return Fit(
            {name: shape[behind[name] :] for name, shape in inputs.items()},
            inputs,
            {n: frozenset(a for a, size in enumerate(one) if size in shared) for n, one in sizes.items()},
        )

    def __call__(self, sample: Sample) -> Sample | None:
        """Return the sample in the sizes of the graph; None where it has other ones."""
        arrays = {name: self._shortened(name, array) for name, array in sample.inputs.items()}
        shapes = {name: array.shape for name, array in arrays.items()}
        if shapes != self.wanted:
            self._left_out.add(sample.key)
            return None
        if any(array is not sample.inputs[name] for name, array in arrays.items()):
            self._cut.add(sample.key)
        return replace(sample, inputs=arrays, whole=are_whole(shapes, self.inputs))

    def _shortened(self, name: str, array: Array) -> Array:
        """Cut an array where it is longer than the graph takes and may be."""
        wanted, along = self.wanted[name], self.along.get(name, frozenset())
        if array.ndim != len(wanted):
            return array
        longer = [axis in along and size > wanted[axis] for axis, size in enumerate(array.shape)]
        if not any(longer):
            return array
        return array[tuple(slice(wanted[a]) if more else slice(None) for a, more in enumerate(longer))]

    def told(self) -> str:
        """A sentence on the samples so far that are not used as they are; "" where all are."""
        kinds = (
            (len(self._cut), "longer ones are cut to them"),
            (len(self._left_out), "others are left out"),
        )
        parts = [f"{count} {words}" for count, words in kinds if count]
        if not parts:
            return ""
        return (
            f"calibration samples of the sizes {listed_shapes(self.wanted)} are used: {' and '.join(parts)}"
        )


def listed_shapes(shapes: Mapping[str, Shape]) -> str:
    """Shapes by name, for people."""
    return ", ".join(f"{name}={list(shape)}" for name, shape in shapes.items())
