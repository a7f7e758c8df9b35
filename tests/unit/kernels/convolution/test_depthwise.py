"""Depthwise kernels give the bits of the reference on every ISA."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qglow.kernels.selection.choice import best_kernel
from tests.runtimes import HOST_ISAS, machine
from tests.unit.kernels.convolution.test_conv import FEW, Case, build, cases, check_float, check_int8


def depthwise(case: Case, channels: int) -> Case:
    """The same window with one filter a channel."""
    return replace(case, shape=(*case.shape[:3], channels), filters=channels, group=channels)


CHANNELS = st.sampled_from([2, 7, 16, 24, 32, 64, 96, 130]) | st.integers(2, 130)


@FEW
@given(cases(), CHANNELS)
def test_random_int8(case: Case, channels: int) -> None:
    check_int8(depthwise(case, channels))


@FEW
@given(cases(), CHANNELS)
def test_random_float(case: Case, channels: int) -> None:
    check_float(replace(depthwise(case, channels), bounds=()))


@pytest.mark.parametrize("channels", [8, 16, 32])
@pytest.mark.parametrize("width", [8, 12])
def test_few_channels_share_vectors_with_neighbouring_pixels(channels: int, width: int) -> None:
    case = Case((2, 5, width, channels), kernel=(3, 3), pads=(1, 1, 1, 1))
    check_int8(depthwise(case, channels))
    check_int8(replace(depthwise(case, channels), to_float=True))


def test_sums_beyond_the_rounding_limit_are_clamped_first() -> None:
    check_int8(depthwise(Case(spread=1e8, extreme=True), 20))


@pytest.mark.parametrize("quantized", [True, False])
def test_the_depthwise_kernel_is_chosen(quantized: bool) -> None:
    program, _ = build(depthwise(Case(), 48), quantized)
    instruction = next(i for i in program.code if i.name == "conv")
    for name in HOST_ISAS:
        assert best_kernel(instruction, machine(name)).name.startswith("depthwise")
