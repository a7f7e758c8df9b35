"""Histograms of parts of the data, kept apart while it is read once: what fewer samples would have given.

Blocks of runs go to the shards in turn, so that every shard is spread evenly over the data, whatever
order that has. Only bins that hold something are kept: memory grows with the shards, not with the
samples.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from qglow.core.errors import DataError, InternalError
from qglow.core.progress import Advance
from qglow.core.types import Array
from qglow.graph.graph import Graph
from qglow.numerics.histogram import BIN_COUNT
from qglow.profiling.engine import Engine
from qglow.profiling.histogram import ValueProfile
from qglow.profiling.nodes import profiled_values
from qglow.profiling.samples import Sample, batches

SHARDS = 32
BLOCKS = 128
"""Into how many blocks the data is cut at most, where its size is known: collecting takes time."""


@dataclass
class SparseHistogram:
    """Counts int64 of the bins (uint16, ascending) that hold something, and the exact extremes."""

    bins: Array = field(default_factory=lambda: np.zeros(0, np.uint16))
    counts: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    low: float = math.inf
    high: float = -math.inf

    def add(self, seen: ValueProfile) -> None:
        """Count in what some runs have seen; its counts are taken over and changed."""
        total = seen.counts
        total[self.bins] += self.counts
        self.bins = np.flatnonzero(total).astype(np.uint16)
        self.counts = total[self.bins]
        self.low, self.high = min(self.low, seen.low), max(self.high, seen.high)


@dataclass(frozen=True)
class ShardedProfile:
    """Histograms of every float value by name, one a shard; `samples` has the size of each shard."""

    samples: tuple[int, ...]
    values: Mapping[str, Sequence[SparseHistogram]]

    def of(self, graph: Graph) -> ShardedProfile:
        """Return the histograms of a graph's values alone."""
        names = list(profiled_values(graph))
        missing = next((name for name in names if name not in self.values), None)
        if missing is not None:
            raise InternalError(f"the engine has no statistics of value '{missing}'")
        return ShardedProfile(self.samples, {name: self.values[name] for name in names})

    def every(self, stride: int) -> Array:
        """int64[shards]: 1 for each `stride`-th shard, as often as `statistics` is to count it."""
        return np.asarray(np.arange(len(self.samples)) % stride == 0, np.int64)

    def statistics(self, name: str, times: Array) -> ValueProfile:
        """Statistics of a value with each shard counted `times` times, int64[shards]; without channels."""
        found = ValueProfile(counts=np.zeros(BIN_COUNT, np.int64))
        for shard, count in zip(self.values[name], times.tolist(), strict=True):
            if count:
                found.counts[shard.bins] += count * shard.counts
                found.low, found.high = min(found.low, shard.low), max(found.high, shard.high)
        return found


def profile_shards(
    graph: Graph,
    samples: Iterable[Sample],
    engine: Engine,
    *,
    batch_size: int = 1,
    size: int | None = None,
    shards: int = SHARDS,
    advance: Advance = lambda done: None,
) -> ShardedProfile:
    """Profile a canonical graph in shards; there are fewer where there are fewer runs.

    `engine` runs the same graph. `size` is the number of samples where it is known. Raises DataError if
    there are fewer than two runs.
    """
    return observe_shards(samples, engine, batch_size, size, shards, advance).of(graph)


def observe_shards(
    samples: Iterable[Sample],
    engine: Engine,
    batch_size: int = 1,
    size: int | None = None,
    shards: int = SHARDS,
    advance: Advance = lambda done: None,
) -> ShardedProfile:
    """Histograms of all that an engine sees, see `profile_shards`."""
    block = max(1, math.ceil((size or 0) / (batch_size * BLOCKS)))
    sizes: list[int] = []
    seen: list[dict[str, SparseHistogram]] = []
    runs = batches(samples, batch_size)
    for number in itertools.count():
        count = 0
        for batch in itertools.islice(runs, block):
            engine.run(batch.inputs)
            count += len(batch)
            advance(len(batch))
        if not count:
            break
        if number < shards:
            sizes.append(0)
            seen.append({})
        sizes[number % shards] += count
        _collect(engine, seen[number % shards])
    if len(sizes) < 2:
        raise DataError(f"{sum(sizes)} samples cannot tell how many are enough; give more")
    names = dict.fromkeys(name for shard in seen for name in shard)
    return ShardedProfile(
        tuple(sizes), {name: [shard.get(name, SparseHistogram()) for shard in seen] for name in names}
    )


def _collect(engine: Engine, histograms: dict[str, SparseHistogram]) -> None:
    """Move what the engine has seen into the histograms of one shard."""
    for name, found in engine.collect().items():
        histograms.setdefault(name, SparseHistogram()).add(found)
    engine.clear()
