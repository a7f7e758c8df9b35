"""Reductions of awkward values, and of nothing, on every ISA."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import ElementType, Quantization, TensorType, float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.ops.reduce import Reduce
from qglow.numerics.reduce import KINDS, reduce
from tests.runtimes import assert_same_bits

SHAPES = [(3, 21, 1), (2, 19, 18), (2, 3, 0), (4, 0, 5), (4, 0, 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_floats_among_them_nan_and_infinities(shape: tuple[int, int, int]) -> None:
    values = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    special = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    values.reshape(-1)[: 3 * special.size : 3][: values.size] = special[: -(-values.size // 3)]
    builder = ProgramBuilder("reductions")
    src = builder.placeholder("src", float_type(*shape))
    for kind in KINDS:
        builder.emit(
            kind, Reduce(kind), builder.placeholder(f"to_{kind}", float_type(shape[0], 1, shape[2])), src
        )
    assert_same_bits(builder.finish(), {"src": values})


@pytest.mark.parametrize("shape", SHAPES[:2], ids=str)
def test_int8_is_selected_as_it_is(shape: tuple[int, int, int]) -> None:
    kind = TensorType(ElementType.INT8, shape, Quantization.per_tensor(0.1, 5))
    builder = ProgramBuilder("reductions")
    src = builder.placeholder("src", kind)
    for name in ("max", "min"):
        dest = builder.placeholder(f"to_{name}", kind.with_shape((shape[0], 1, shape[2])))
        builder.emit(name, Reduce(name), dest, src)
    data = np.random.default_rng(2).integers(-128, 128, shape).astype(np.int8)
    assert_same_bits(builder.finish(), {"src": data})


def test_nan_wins_and_nothing_gives_what_never_wins() -> None:
    x = np.array([[1.0, np.nan, 3.0]], np.float32)
    assert np.isnan(reduce(x, "max", (1,))) and np.isnan(reduce(x, "min", (1,)))
    nothing = np.zeros((2, 0), np.float32)
    found = {kind: reduce(nothing, kind, (1,), keepdims=False)[0] for kind in KINDS if kind != "mean"}
    assert found == {"sum": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf}


def test_integers_are_reduced_as_integers() -> None:
    x = np.array([[2, 3], [-4, 1]], np.int64)
    assert reduce(x, "prod", (0, 1)).item() == -24
    assert reduce(x, "mean", (1,), keepdims=False).tolist() == [2, -1]
    assert reduce(x, "max", (0,)).dtype == np.int64
