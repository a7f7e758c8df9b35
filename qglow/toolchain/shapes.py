"""Profiles of a model over samples of several shapes: one program a shape, one profile of all."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from qglow.core.batch import are_whole
from qglow.core.progress import Advance
from qglow.core.types import Array, Shape
from qglow.graph.graph import Graph
from qglow.profiling.datasets import DataSet
from qglow.profiling.engine import Engine
from qglow.profiling.histogram import ValueProfile
from qglow.profiling.kept import Keeper
from qglow.profiling.profile import Profile
from qglow.profiling.profiler import observe, profile_of
from qglow.profiling.samples import Sample, sample_digest
from qglow.profiling.shards import ShardedProfile, observe_shards
from qglow.recipe.data import MOST_KEPT, Preprocessing
from qglow.toolchain.loaded import LoadedModel
from qglow.toolchain.sample_fit import Fit

MOST_PROGRAMS = 8
"""Shapes whose programs are kept while samples are run; the statistics of others stay."""

CANDIDATES = 8
"""Samples of all shapes that are held for each one that is kept in the end."""

Shapes = tuple[tuple[str, Shape], ...]
"""Shape of every input of a sample, without a batch axis."""
ModelAt = Callable[[Mapping[str, Shape]], LoadedModel]


class ShapedEngine:
    """Runs batches of any shapes, each by an engine of its own shapes. Satisfies profiling's `Engine`.

    Statistics of one value over several shapes are added up. Those of channels are left out where the number
    of channels is not the same in all of them.
    """

    def __init__(self, at: ModelAt, make: Callable[[LoadedModel], Engine]) -> None:
        """`at` gives the model for shapes of one sample, `make` an engine that runs it."""
        self._at, self._make = at, make
        self._engines: dict[Shapes, tuple[Engine, bool]] = {}
        self._ran: dict[Shapes, Engine] = {}
        self._collected: dict[str, ValueProfile] = {}

    def run(self, inputs: Mapping[str, Array]) -> None:
        """Run one batch and count it in."""
        key = tuple((name, np.shape(array)[1:]) for name, array in inputs.items())
        if key not in self._engines:
            if len(self._engines) >= MOST_PROGRAMS:
                oldest = next(iter(self._engines))
                del self._engines[oldest]
                if oldest in self._ran:
                    self._take_over(self._ran.pop(oldest))
            model = self._at(dict(key))
            self._engines[key] = self._make(model), are_whole(dict(key), model.shapes)
        engine, whole = self._engines[key]
        engine.run({name: array[0] for name, array in inputs.items()} if whole else inputs)
        self._ran[key] = engine

    def collect(self) -> dict[str, ValueProfile]:
        """Statistics by value name, over all batches since the beginning or the last `clear`."""
        for engine in self._ran.values():
            self._take_over(engine)
            engine.clear()
        self._ran = {}
        return dict(self._collected)

    def clear(self) -> None:
        """Forget everything; what `collect` has given before stays as it is."""
        for engine in self._ran.values():
            engine.clear()
        self._ran, self._collected = {}, {}

    def _take_over(self, engine: Engine) -> None:
        for name, found in engine.collect().items():
            known = self._collected.get(name)
            self._collected[name] = found if known is None else _sum(known, found)


def _sum(first: ValueProfile, second: ValueProfile) -> ValueProfile:
    """Statistics of both parts, without those of channels that differ."""
    parts = [first, second]
    kinds = {None if p.channels is None else (p.channels.axis, p.channels.low.size) for p in parts}
    if len(kinds) > 1:
        parts = [replace(part, channels=None) for part in parts]
    total = ValueProfile()
    if parts[0].channels is not None:
        total.channels = parts[0].channels.empty(parts[0].channels.axis, parts[0].channels.low.size)
    for part in parts:
        total.merge(part)
    return total


def profile_shapes(
    at: ModelAt,
    data: DataSet,
    make: Callable[[LoadedModel], Engine],
    preprocessing: Preprocessing | None,
    keep_samples: int,
    advance: Advance,
) -> Profile:
    """Profile a model over samples whose shapes may differ.

    at: the model for shapes of one sample. make: an engine for a model. The profile is of the graph of the
    shapes that most samples have, the largest of those that are equally frequent, and keeps samples of these
    shapes, longer ones too, as far as they can be cut. Raises the errors of `observe`.
    """
    counted: Counter[Shapes] = Counter()
    engine = ShapedEngine(at, make)
    seen = observe(_counting(data, counted), engine, 1, _candidates(keep_samples), advance)
    model = at(dict(commonest(counted)))
    kept = _kept(seen.kept, model, keep_samples)
    seen = replace(seen, kept=kept, limit=keep_samples)
    return profile_of(
        model.graph, seen, engine, model=model.source, shapes=model.shapes, preprocessing=preprocessing
    )


def profile_shapes_in_shards(
    at: ModelAt, data: DataSet, make: Callable[[LoadedModel], Engine], advance: Advance
) -> tuple[Graph, ShardedProfile]:
    """Profile a model in shards over samples whose shapes may differ, see `profile_shapes`.

    Returns the graph of the shapes that most samples have too. Raises the errors of `profile_shards`.
    """
    counted: Counter[Shapes] = Counter()
    seen = observe_shards(_counting(data, counted), ShapedEngine(at, make), size=data.size, advance=advance)
    graph = at(dict(commonest(counted))).graph
    return graph, seen.of(graph)


def _counting(data: DataSet, counted: Counter[Shapes]) -> Iterator[Sample]:
    """The samples, whose shapes are counted as they pass."""
    for sample in data:
        counted[shapes_of(sample)] += 1
        yield sample


def _candidates(keep_samples: int) -> int:
    """Samples of any shapes to choose from for so many of one."""
    return min(CANDIDATES * keep_samples, max(MOST_KEPT, keep_samples))


def _kept(samples: Iterable[Sample], model: LoadedModel, limit: int) -> tuple[Sample, ...]:
    """At most so many of the samples, in the shapes of a model."""
    declared = {name: model.dimensions.get(name) or shape for name, shape in model.shapes.items()}
    fit, keeper = Fit.of(model.shapes, declared, cuts=True), Keeper(limit)
    for sample in filter(None, map(fit, samples)):
        keeper.add(sample, sample_digest(sample.inputs).hex())
    return keeper.samples


def commonest(counted: Counter[Shapes]) -> Shapes:
    """The shapes that most samples have, the largest of those that are equally frequent."""
    return max(counted, key=lambda key: (counted[key], sum(math.prod(s) for _, s in key), key))


def shapes_of(sample: Sample) -> Shapes:
    """Shapes of the inputs of a sample."""
    return tuple((name, array.shape) for name, array in sample.inputs.items())
