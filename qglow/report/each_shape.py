"""Comparisons over samples of several shapes: programs for each shape, seen as runners of single samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from qglow.core.errors import DataError
from qglow.core.types import Array, Shape, TensorType
from qglow.graph.graph import Graph
from qglow.profiling.samples import Sample
from qglow.report.parts import QuantizedParts
from qglow.report.runner import Runner, real_types
from qglow.toolchain.sample_fit import Fit, listed_shapes
from qglow.toolchain.samples import FreeInputs
from qglow.toolchain.undecided import KEPT, Kept, Specialisation

ROOM = 2**30
"""Bytes of weights of programs that are kept for shapes seen before; those of two shapes are in any case."""


@dataclass(frozen=True)
class OpenShapes:
    """Inputs of a quantized model that may have several shapes, and what gives its int8 graph for them."""

    inputs: FreeInputs
    at: Callable[[Mapping[str, Shape]], Graph]


class EachShape:
    """Programs by name for the shapes of each sample, those that were used last kept."""

    def __init__(
        self,
        parts: QuantizedParts,
        shapes: OpenShapes,
        make: Callable[[QuantizedParts], Mapping[str, Runner]],
        own: Mapping[str, Runner],
    ) -> None:
        """`make` gives the programs of the model with the graph of other shapes; its own ones have `own`."""
        self.parts, self.shapes = parts, shapes
        self._make, self._own = make, own
        weights = sum(value.type.byte_size for value in parts.int8.constants())
        several = ROOM // (2 * weights + 1)  # once in each program
        self._kept: Kept[Mapping[str, Runner]] = Kept(min(max(2, several), KEPT))

    def runner(self, name: str) -> Runner:
        """One of the programs, for samples of any shapes, one by one."""
        return _SampleRunner(self, name)

    def programs(self, inputs: Mapping[str, Array]) -> Mapping[str, Runner]:
        """The programs for inputs of these shapes."""
        return self._kept.get(Specialisation.of(inputs, (), free=True), lambda: self._made(inputs))

    def _made(self, inputs: Mapping[str, Array]) -> Mapping[str, Runner]:
        shapes = {name: array.shape for name, array in inputs.items()}
        if shapes == self.parts.shapes:
            return self._own
        return self._make(replace(self.parts, int8=self.shapes.at(shapes), ahead=None))


def of_own_shapes(samples: Iterable[Sample], shapes: OpenShapes, parts: QuantizedParts) -> Iterator[Sample]:
    """The samples of the shapes that a model was profiled with. Raises DataError where there is none."""
    batched, own = shapes.inputs.batched, parts.shapes
    fit = Fit({name: shape[name in batched :] for name, shape in own.items()}, own)
    count = 0
    for sample in filter(None, map(fit, samples)):
        count += 1
        yield sample
    if not count:
        text = listed_shapes(fit.wanted)
        raise DataError(f"no sample has the shapes of the profile, {text}, in which layers are compared")


@dataclass(frozen=True)
class _SampleRunner:
    """A program of any shapes as a runner of samples: one by one where they have no batch axis."""

    each: EachShape
    name: str

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Types of samples of the profile's shapes."""
        batched, kinds = self.each.shapes.inputs.batched, real_types(self.each.parts.inputs)
        return {
            n: kind if n in batched else replace(kind, shape=(1, *kind.shape)) for n, kind in kinds.items()
        }

    def __call__(self, inputs: Mapping[str, Array], /) -> dict[str, Array]:
        """Run once."""
        batched = self.each.shapes.inputs.batched
        given = {name: array if name in batched else array[0] for name, array in inputs.items()}
        outputs = self.each.programs(given)[self.name](given)
        if inputs.keys() <= batched:
            return dict(outputs)
        return {name: a if a.shape[:1] == (1,) else np.asarray(a)[None] for name, a in outputs.items()}
