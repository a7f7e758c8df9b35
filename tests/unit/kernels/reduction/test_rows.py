"""Rows of integers by scales that are measured, on every ISA."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import Array, ElementType, TensorType, float_type
from qglow.graph.ops.rows import THEMSELVES
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.ops.rows import QuantizeRows
from qglow.instructions.program import Program
from tests.runtimes import assert_same_bits


def program(rows: int, length: int) -> Program:
    builder = ProgramBuilder("rows")
    src = builder.placeholder("src", float_type(rows, length))
    integers = TensorType(ElementType.INT8, (rows, length), THEMSELVES)
    results = builder.placeholder("dest", integers), builder.placeholder("scales", float_type(rows, 1))
    builder.emit("rows", QuantizeRows(), *results, src)
    return builder.finish()


@pytest.mark.parametrize("length", [0, 1, 15, 16, 33, 64, 130, 768])
def test_rows_of_all_lengths(length: int) -> None:
    x = np.random.default_rng(length).normal(size=(5, length)).astype(np.float32)
    assert_same_bits(program(5, length), {"src": x})


def ties(scale: float) -> Array:
    """Elements in the middle between two integers, and their neighbours, in a row with this scale."""
    middle = (np.arange(-126, 127) + 0.5).astype(np.float32) * np.float32(scale)
    near = [middle]
    for direction in (-np.inf, np.inf):
        near += [np.nextafter(middle, np.float32(direction))]
    return np.concatenate([*near, np.array([127 * np.float32(scale)], np.float32)])


def test_rows_near_ties() -> None:
    scales = [1.0, 0.1, 1 / 3, 1.9999999, 2.0**-100, 3e-28, 2.6e36]
    x = np.stack([ties(scale) for scale in scales])
    assert_same_bits(program(*x.shape), {"src": x})


def test_rows_without_a_scale_and_rows_of_tiny_elements() -> None:
    x = np.random.default_rng(3).normal(size=(8, 40)).astype(np.float32)
    x[0, 3], x[1, 39], x[2, 0], x[3] = np.nan, np.inf, -np.inf, 0.0
    x[4], x[5], x[6] = x[4] * np.float32(1e-38), x[5] * np.float32(1e-44), np.float32(-0.0)
    x[7, :2] = np.finfo(np.float32).max, -np.finfo(np.float32).max
    assert_same_bits(program(*x.shape), {"src": x})
