"""Histograms of parts of the data add up to those of all of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qglow.core.errors import DataError
from qglow.profiling.engine import Engine, InterpreterEngine
from qglow.profiling.shards import ShardedProfile, profile_shards
from qglow.toolchain.engine import CompiledEngine
from tests.unit.profiling.networks import profile_of, residual_network, samples


def sharded(count: int, engine: Engine | None = None, **options: int) -> ShardedProfile:
    return profile_shards(
        residual_network(), samples(count), engine or InterpreterEngine(residual_network), **options
    )


@pytest.mark.parametrize("compiled", [False, True])
def test_all_shards_together_are_the_profile(compiled: bool) -> None:
    engine = CompiledEngine(residual_network) if compiled else InterpreterEngine(residual_network)
    found, wanted = sharded(12, engine, shards=4), profile_of(12).by_name()
    assert found.samples == (3, 3, 3, 3) and set(found.values) == set(wanted)
    for name, statistics in wanted.items():
        everything = found.statistics(name, found.every(1))
        if not compiled:
            assert np.array_equal(everything.counts, statistics.counts)
            assert (everything.low, everything.high) == (statistics.low, statistics.high)
        assert everything.total == statistics.total


def test_a_stride_of_shards_is_every_so_manyth_sample() -> None:
    found = sharded(12, shards=4)
    every_other = [sample for i, sample in enumerate(samples(12)) if i % 2 == 0]
    alone = profile_shards(residual_network(), every_other, InterpreterEngine(residual_network))
    some = found.statistics("stem", found.every(2))
    assert np.array_equal(some.counts, alone.statistics("stem", alone.every(1)).counts)


def test_a_shard_may_count_more_than_once() -> None:
    found = sharded(4, shards=2)
    twice = found.statistics("x", np.array([2, 0]))
    once = found.statistics("x", np.array([1, 0]))
    assert np.array_equal(twice.counts, 2 * once.counts)
    assert (twice.low, twice.high) == (once.low, once.high)


def test_much_data_goes_to_the_shards_in_blocks() -> None:
    found = sharded(10, shards=4, size=600)
    assert found.samples == (5, 5)


def test_the_last_batch_may_be_smaller() -> None:
    assert sharded(5, shards=4, batch_size=2).samples == (2, 2, 1)


def test_one_run_is_too_few() -> None:
    with pytest.raises(DataError, match="1 samples cannot tell"):
        sharded(1)


def test_what_was_collected_stays_when_the_engine_forgets() -> None:
    engine = InterpreterEngine(residual_network)
    engine.run({"x": samples(1)[0].inputs["x"][None]})
    seen = engine.collect()["x"]
    total = seen.total
    engine.clear()
    engine.run({"x": samples(1)[0].inputs["x"][None]})
    assert seen.total == total == engine.collect()["x"].total
    assert replace(seen).total == total
