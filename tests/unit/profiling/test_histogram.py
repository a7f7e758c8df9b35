"""Statistics of a value depend on the data alone, not on how it arrives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from qglow.profiling.histogram import FRACTION_BITS, ChannelProfile, ValueProfile, channel_axis, channel_size

floats = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=2, max_dims=4, min_side=1, max_side=5),
    elements=st.floats(width=32, allow_nan=True, allow_infinity=True),
)


def observed(*batches: np.ndarray) -> ValueProfile:
    profile = ValueProfile.of_shape(batches[0].shape)
    for batch in batches:
        profile.observe(batch)
    return profile


def assert_same(a: ValueProfile, b: ValueProfile) -> None:
    np.testing.assert_array_equal(a.counts, b.counts)
    assert (repr(a.low), repr(a.high)) == (repr(b.low), repr(b.high))
    assert (a.channels is None) == (b.channels is None)
    if a.channels is not None and b.channels is not None:
        assert a.channels.low.tobytes() == b.channels.low.tobytes()
        assert a.channels.high.tobytes() == b.channels.high.tobytes()
        assert a.channels.totals() == b.channels.totals()


@given(floats, st.randoms(use_true_random=False))
def test_batches_order_and_shards_leave_no_trace(array: np.ndarray, random: object) -> None:
    whole = observed(array)
    order = list(range(len(array)))
    random.shuffle(order)  # type: ignore[attr-defined]
    singles = observed(*(array[i : i + 1] for i in order))
    assert_same(whole, singles)
    half = len(array) // 2
    if half:
        shard, other = observed(array[:half]), observed(array[half:])
        shard.merge(other)
        assert_same(whole, shard)


def test_every_element_is_counted_once() -> None:
    array = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
    profile = observed(array)
    assert profile.total == array.size
    assert (profile.low, profile.high) == (array.min(), array.max())


def test_zeros_infinities_and_nan_are_known_by_name() -> None:
    profile = observed(np.array([[0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1.0]], np.float32))
    assert (profile.zero_count, profile.infinity_count, profile.nan_count) == (2, 2, 2)
    assert (profile.low, profile.high) == (-np.inf, np.inf)


def test_sign_of_zero_does_not_depend_on_order() -> None:
    for order in itertools.permutations([0.0, -0.0]):
        profile = observed(*(np.full((1, 1), x, np.float32) for x in order))
        assert repr(profile.low) == repr(profile.high) == "0.0"


def test_an_empty_batch_changes_nothing() -> None:
    profile = observed(np.zeros((0, 3), np.float32))
    assert profile.total == 0 and profile.low == np.inf


@pytest.mark.parametrize(("shape", "axis"), [((), None), ((5,), None), ((2, 3), 1), ((1, 3, 4, 4), 1)])
def test_channels_are_axis_1(shape: tuple[int, ...], axis: int | None) -> None:
    assert channel_axis(shape) == axis


def test_channel_means_are_those_of_the_samples() -> None:
    array = np.random.default_rng(1).normal(3.0, 2.0, (6, 4, 5, 5)).astype(np.float32)
    profile = observed(array)
    assert profile.channels is not None
    np.testing.assert_allclose(profile.channels.means(6), array.mean((0, 2, 3), dtype=np.float64), atol=1e-9)
    np.testing.assert_array_equal(profile.channels.high, array.max((0, 2, 3)))


def test_totals_restore_the_channel_profile() -> None:
    channels = ChannelProfile.empty(1, 3)
    channels.add_sums(np.array([[-2.25, 0.5, 1e9]]), 1)
    totals = channels.totals()
    assert totals[0] == -(9 << FRACTION_BITS) // 4
    assert ChannelProfile.from_totals(1, channels.low, channels.high, totals).totals() == totals


def test_means_that_are_not_finite_count_as_zero_and_huge_ones_saturate() -> None:
    channels = ChannelProfile.empty(1, 3)
    channels.add_sums(np.array([[np.nan, -np.inf, 1e300]]), 1)
    assert channels.totals()[:2] == [0, 0]
    assert channels.totals()[2] == 2**45 << FRACTION_BITS


def test_state_of_a_compiled_program_gives_what_observing_gives() -> None:
    array = np.random.default_rng(2).normal(size=(2, 3, 4, 4)).astype(np.float32)
    profile = ValueProfile.of_shape(array.shape)
    profile.observe_sums(array.sum((2, 3), dtype=np.float64), channel_size(array.shape, 1))
    profile.observe_state(
        observed(array).counts,
        np.array([array.min(), array.max()]),
        np.stack([array.min((0, 2, 3)), array.max((0, 2, 3))]),
    )
    assert_same(profile, observed(array))


def test_profiles_of_different_channels_do_not_merge() -> None:
    with pytest.raises(ValueError, match="channels"):
        observed(np.zeros((1, 3), np.float32)).merge(observed(np.zeros((1, 4), np.float32)))


def test_what_is_derived_is_computed_anew_when_more_is_counted_in() -> None:
    profile = ValueProfile()
    for number, expected in enumerate([2, 2, 5]):
        if number != 1:
            profile.observe(np.ones((2 + number // 2, 1), np.float32))
        assert profile.derived("count", lambda: int(profile.counts.sum())) == profile.total == expected
