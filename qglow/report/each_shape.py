"""Comparisons over samples of several shapes: programs for each shape, seen as runners of single samples.

Where samples have many shapes, programs that take all of them are made once; results have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qglow.core.errors import DataError, MemoryLimitError, ModelError, UnsupportedError, UsageError
from qglow.core.types import Array, Dimension, Shape, TensorType
from qglow.graph.graph import Graph
from qglow.profiling.samples import Sample
from qglow.report.parts import QuantizedParts
from qglow.report.runner import Runner, real_types
from qglow.runtime.executable import Executable
from qglow.toolchain import CompileOptions
from qglow.toolchain.bounded_inputs import LEAST
from qglow.toolchain.sample_fit import Fit, listed_shapes
from qglow.toolchain.samples import FreeInputs
from qglow.toolchain.undecided import KEPT, Kept, Specialisation

ROOM = 2**30
"""Bytes of weights of programs that are kept for shapes seen before; those of two shapes are in any case."""


PATIENCE = 4
"""Shapes with programs of their own, before those for all are made, which takes a few times as long."""


@dataclass(frozen=True)
class OpenShapes:
    """Inputs of a quantized model that may have several shapes, and what gives its programs for them.

    at: the int8 graph for shapes. dimensions: of the inputs, as the file declares them. bounded: one program
    for all sizes of the dimensions up to bounds. exported: the QDQ model for all sizes, as a file. The last
    two raise UnsupportedError where there is none.
    """

    inputs: FreeInputs
    at: Callable[[Mapping[str, Shape]], Graph]
    dimensions: Mapping[str, Sequence[Dimension]]
    bounded: Callable[[Mapping[str, int], CompileOptions], Executable]
    exported: Callable[[], bytes]

    def sizes(self, shapes: Mapping[str, Shape]) -> dict[str, int] | None:
        """Sizes of the named dimensions; None where a dimension has no name or several sizes."""
        found: dict[str, int] = {}
        for name, shape in shapes.items():
            for dimension, size in zip(self.dimensions[name], shape, strict=True):
                if isinstance(dimension, str):
                    if found.setdefault(dimension, size) != size:
                        return None
                elif dimension != size:
                    return None
        return found


Wide = Callable[[Mapping[str, int]], Mapping[str, Runner]]
"""Makes programs by name for all sizes of dimensions up to bounds."""


class EachShape:
    """Programs by name for the shapes of each sample, those that were used last kept."""

    def __init__(
        self,
        parts: QuantizedParts,
        shapes: OpenShapes,
        make: Callable[[QuantizedParts], Mapping[str, Runner]],
        own: Mapping[str, Runner],
        wide: Wide | None = None,
    ) -> None:
        """`make` gives the programs of the model with the graph of other shapes; its own ones have `own`.

        wide: makes programs of many shapes, for samples of more than a few.
        """
        self.parts, self.shapes = parts, shapes
        self._make, self._own, self._wide = make, own, wide
        self._seen: set[tuple[int, ...]] = set()
        self._bounds: dict[str, int] = {}
        self._of_all: Mapping[str, Runner] = {}
        weights = sum(value.type.byte_size for value in parts.int8.constants())
        several = ROOM // (2 * weights + 1)  # once in each program
        self._kept: Kept[Mapping[str, Runner]] = Kept(min(max(2, several), KEPT))

    def runner(self, name: str) -> Runner:
        """One of the programs, for samples of any shapes, one by one."""
        return _SampleRunner(self, name)

    def programs(self, inputs: Mapping[str, Array]) -> Mapping[str, Runner]:
        """The programs for inputs of these shapes."""
        shapes = {name: array.shape for name, array in inputs.items()}
        if shapes == self.parts.shapes:
            return self._own
        if self._takes(shapes):
            return self._of_all
        return self._kept.get(Specialisation.of(inputs, ()), lambda: self._made(shapes))

    def _made(self, shapes: Mapping[str, Shape]) -> Mapping[str, Runner]:
        return self._make(replace(self.parts, int8=self.shapes.at(shapes), ahead=None))

    def _takes(self, shapes: Mapping[str, Shape]) -> bool:
        """Whether programs of many shapes take these; makes them where samples have had more than a few."""
        sizes = None if self._wide is None else self.shapes.sizes(shapes)
        if sizes is None or self._wide is None:
            return False
        self._seen.add(tuple(sizes.values()))
        if len(self._seen) <= PATIENCE:
            return False
        if any(size > self._bounds.get(name, 0) for name, size in sizes.items()):
            self._widen(list(sizes), self._wide)
        return self._wide is not None

    def _widen(self, names: Sequence[str], wide: Wide) -> None:
        """Make programs for all sizes that samples had, or give it up: some models have none."""
        seen = map(max, zip(*self._seen, strict=True))
        largest = {n: 1 if size == 1 else max(LEAST, size) for n, size in zip(names, seen, strict=True)}
        # The next power of two holds most sizes that follow; tables of positions may end before it.
        further = {name: 1 << (size - 1).bit_length() for name, size in largest.items()}
        for bounds in (further, largest):
            try:
                self._of_all, self._bounds = wide(bounds), bounds
            except (DataError, ModelError, MemoryLimitError, UnsupportedError, UsageError):
                continue
            return
        self._wide = None


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
