"""Softmax gives the bits of its numpy reference along every axis."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.ops.softmax import Softmax
from tests.runtimes import assert_same_bits


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((3, 1000), -1),
        ((2, 5), 1),
        ((4, 16), 1),
        ((2, 33, 1, 1), 1),
        ((2, 19, 3, 7), 1),
        ((35, 40), 0),
        ((0, 4), 1),
        ((0, 4), 0),
    ],
)
@pytest.mark.parametrize("logarithm", [False, True])
def test_softmax(shape: tuple[int, ...], axis: int, logarithm: bool) -> None:
    rng = np.random.default_rng(len(shape))
    values = (rng.standard_normal(shape) * 10).astype(np.float32)
    builder = ProgramBuilder("softmax")
    kind = float_type(*shape)
    src, dest = builder.placeholder("src", kind), builder.placeholder("dest", kind)
    builder.emit("op", Softmax(axis, logarithm), dest, src)
    assert_same_bits(builder.finish(), {"src": values})


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("form", [(False, False), (True, False), (False, True)])
def test_infinities_and_nan(form: tuple[bool, bool], axis: int) -> None:
    values = np.zeros((6, 20), np.float32)
    values[0, 3] = np.inf
    values[1, 17] = np.nan
    values[2] = -np.inf
    values[3, :10] = -np.inf
    values[4, 2] = 3e38
    values[5] = np.linspace(-200, 0, 20)
    builder = ProgramBuilder("softmax")
    values = values if axis == 1 else np.ascontiguousarray(values.T)
    kind = float_type(*values.shape)
    src, dest = builder.placeholder("src", kind), builder.placeholder("dest", kind)
    builder.emit("op", Softmax(axis, *form), dest, src)
    assert_same_bits(builder.finish(), {"src": values})
