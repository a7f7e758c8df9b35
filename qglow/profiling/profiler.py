"""Streams data through an engine and makes a profile of what it saw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from qglow.core.errors import DataError, InternalError
from qglow.core.progress import Advance
from qglow.core.types import Shape
from qglow.graph.fingerprint import fingerprint, structural_ids
from qglow.graph.graph import Graph
from qglow.profiling.engine import Engine
from qglow.profiling.kept import Keeper
from qglow.profiling.nodes import profiled_values
from qglow.profiling.profile import ModelReference, Profile, ProfiledValue
from qglow.profiling.samples import DataDigest, Sample, batches
from qglow.recipe.data import KEPT, Preprocessing


def profile(
    graph: Graph,
    samples: Iterable[Sample],
    engine: Engine,
    *,
    model: ModelReference,
    batch_size: int = 1,
    shapes: Mapping[str, Shape] | None = None,
    preprocessing: Preprocessing | None = None,
    keep_samples: int = KEPT,
    advance: Advance = lambda done: None,
) -> Profile:
    """A profile of `graph`, the canonical graph with batch 1, over `samples`.

    `engine` runs the same graph, for whatever batch size. Memory does not grow with the number of
    samples: one batch and one histogram a value are held. `shapes` are the input shapes as bound
    (default: the graph's). keep_samples: how many samples the profile keeps; see `Keeper`. Raises DataError
    if there is no sample, UsageError for a wrong number to keep.
    """
    seen = observe(samples, engine, batch_size, keep_samples, advance)
    bound = {v.name: v.type.shape for v in graph.inputs} if shapes is None else dict(shapes)
    return profile_of(graph, seen, engine, model=model, shapes=bound, preprocessing=preprocessing)


@dataclass(frozen=True)
class RunSamples:
    """Samples that an engine has run: their digest, their number, and those to keep, `limit` at most."""

    digest: DataDigest
    count: int
    kept: tuple[Sample, ...]
    limit: int
    note: str


def observe(
    samples: Iterable[Sample],
    engine: Engine,
    batch_size: int = 1,
    keep_samples: int = KEPT,
    advance: Advance = lambda done: None,
) -> RunSamples:
    """Run samples through an engine.

    Raises DataError if there is none, UsageError for a wrong number to keep.
    """
    digest, keeper, count = DataDigest(), Keeper(keep_samples), 0
    for batch in batches(_counted(samples, digest, keeper), batch_size):
        engine.run(batch.inputs)
        count += len(batch)
        advance(len(batch))
    if not count:
        raise DataError("there is no sample to profile with")
    return RunSamples(digest, count, keeper.samples, keep_samples, keeper.note)


def profile_of(
    graph: Graph,
    seen: RunSamples,
    engine: Engine,
    *,
    model: ModelReference,
    shapes: Mapping[str, Shape],
    preprocessing: Preprocessing | None = None,
) -> Profile:
    """The profile of a graph from what an engine has collected over the samples."""
    ids, collected = structural_ids(graph), engine.collect()
    values: dict[str, ProfiledValue] = {}
    for name, value in profiled_values(graph).items():
        if name not in collected:
            raise InternalError(f"the engine has no statistics of value '{name}'")
        values.setdefault(ids[value], ProfiledValue(name, collected[name]))
    return Profile(
        model,
        fingerprint(graph),
        seen.count,
        seen.digest,
        dict(shapes),
        preprocessing,
        values,
        seen.kept,
        seen.limit,
        seen.note,
    )


def _counted(samples: Iterable[Sample], digest: DataDigest, keeper: Keeper) -> Iterable[Sample]:
    for sample in samples:
        keeper.add(sample, digest.add(sample.inputs).hex())
        yield sample
