"""Indices and starts are read as the code runs, and none of them reaches outside of memory."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import ElementType, Quantization, TensorType, float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.ops.movement import Broadcast, Gather, InsertAt
from tests.runtimes import assert_same_bits

KINDS = [
    float_type(2, 5, 3),
    TensorType(ElementType.INT8, (2, 5, 3), Quantization.per_tensor(0.5, 3)),
    TensorType(ElementType.INT64, (2, 5, 3)),
]


@pytest.mark.parametrize("element", [ElementType.INT32, ElementType.INT64])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_indices_that_are_out_of_range_are_held_inside(axis: int, element: ElementType) -> None:
    indices = np.array([0, -1, 1000, -1000, 1], element.dtype)
    for kind in KINDS:
        shape = list(kind.shape)
        shape[axis] = indices.size
        builder = ProgramBuilder("gather")
        src = builder.placeholder("src", kind)
        chosen = builder.placeholder("indices", TensorType(element, indices.shape))
        dest = builder.placeholder("dest", kind.with_shape(tuple(shape)))
        builder.emit("op", Gather(axis), dest, src, chosen)
        data = np.arange(kind.size).astype(kind.element.dtype).reshape(kind.shape)
        assert_same_bits(builder.finish(), {"src": data, "indices": indices})


@pytest.mark.parametrize("source", [(1, 1, 1), (2, 1, 1), (1, 5, 3), (2, 1, 3), (2, 5, 1), (2, 5, 3)])
def test_repetition_of_any_axes(source: tuple[int, ...]) -> None:
    for kind in KINDS:
        builder = ProgramBuilder("broadcast")
        src = builder.placeholder("src", kind.with_shape(source))
        dest = builder.placeholder("dest", kind)
        builder.emit("op", Broadcast(), dest, src)
        data = np.arange(src.type.size).astype(kind.element.dtype).reshape(source)
        assert_same_bits(builder.finish(), {"src": data})


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("first", [0, 1, 2, 1000, -1000])
def test_slices_are_written_inside_of_what_is_kept(axis: int, first: int) -> None:
    for kind in (float_type(4, 5, 3), TensorType(ElementType.INT64, (4, 5, 3))):
        shape = list(kind.shape)
        shape[axis] = 2
        builder = ProgramBuilder("insert")
        src = builder.placeholder("src", kind.with_shape(tuple(shape)))
        place = builder.placeholder("first", TensorType(ElementType.INT64, (1,)))
        dest = builder.placeholder("dest", kind)
        builder.emit("op", InsertAt(axis), dest, src, place)
        data = np.arange(src.type.size).astype(kind.element.dtype).reshape(shape)
        before = np.full(kind.shape, -7, kind.element.dtype)
        given = {"src": data, "first": np.array([first])}
        assert_same_bits(builder.finish(), given, state={"dest": before})
