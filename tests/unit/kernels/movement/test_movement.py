"""Copies, slices, borders and transpositions move every element to its place."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from qglow.core.types import Array, ElementType, Quantization, TensorType, float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.ops.elementwise import ElementAdd
from qglow.instructions.ops.memory import Copy, FillPadding, Splat
from qglow.instructions.ops.movement import Extract, Insert, Transpose
from qglow.kernels.selection.choice import candidates
from qglow.targets.x86.isas import AVX2, AVX512_VNNI
from tests.runtimes import assert_same_bits


def kinds(*shape: int) -> list[TensorType]:
    return [
        float_type(*shape),
        TensorType(ElementType.INT8, shape, Quantization.per_tensor(0.5, 3)),
        TensorType(ElementType.INT64, shape),
    ]


def numbered(kind: TensorType) -> Array:
    return (np.arange(kind.size) % 251 - 125).astype(kind.element.dtype).reshape(kind.shape)


@pytest.mark.parametrize("size", [1, 63, 64, 200, 3000])
def test_copy(size: int) -> None:
    for kind in kinds(size):
        builder = ProgramBuilder("copy")
        src, dest = builder.placeholder("src", kind), builder.placeholder("dest", kind)
        builder.emit("op", Copy(), dest, src)
        assert_same_bits(builder.finish(), {"src": numbered(kind)})


def test_insert_and_extract_of_slices() -> None:
    for kind in kinds(2, 4, 5, 12):
        part = kind.with_shape((2, 2, 5, 3))
        builder = ProgramBuilder("slices")
        src, dest = builder.placeholder("src", kind), builder.placeholder("dest", kind)
        slice_ = builder.activation("slice", part)
        whole = builder.activation("whole", kind)
        builder.emit("take", Extract((0, 0, 0, 1), (1, 2, 1, 4)), slice_, src)
        builder.emit("fill", Splat(0.0), whole)
        builder.emit("put", Insert((0, 1, 0, 9)), whole, slice_)
        builder.emit("out", Copy(), dest, whole)
        assert_same_bits(builder.finish(), {"src": numbered(kind)})


@pytest.mark.parametrize("padding", [(1, 1, 1, 1), (2, 0, 0, 3), (0, 0, 1, 0), (0, 1, 0, 0)])
@pytest.mark.parametrize("channels", [1, 3, 70])
def test_border(channels: int, padding: tuple[int, int, int, int]) -> None:
    for kind in kinds(2, 3, 4, channels)[:2]:
        builder = ProgramBuilder("border")
        src, dest = builder.placeholder("src", kind), builder.placeholder("dest", kind)
        padded = builder.activation("padded", kind, padding)
        builder.emit("pad", FillPadding(padding), padded)
        builder.emit("in", Copy(), padded, src)
        builder.emit("again", FillPadding(padding), padded)
        builder.emit("out", ElementAdd(), dest, padded, src)
        assert_same_bits(builder.finish(), {"src": numbered(kind)})


SHAPES = [(1, 3, 20, 20), (2, 1, 5, 7), (1, 40, 7, 7), (2, 16, 4, 8), (1, 130, 1, 1), (1, 4, 3, 33)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("perm", [(0, 2, 3, 1), (0, 3, 1, 2), (0, 1, 3, 2), (3, 2, 1, 0)])
def test_transpose(shape: tuple[int, ...], perm: tuple[int, ...]) -> None:
    for kind in kinds(*shape)[:2]:
        builder = ProgramBuilder("transpose")
        src = builder.placeholder("src", kind)
        dest = builder.placeholder("dest", kind.with_shape(tuple(shape[a] for a in perm)))
        builder.emit("op", Transpose(perm), dest, src)
        assert_same_bits(builder.finish(), {"src": numbered(kind)})


def test_transpose_of_every_order() -> None:
    kind = float_type(2, 9, 10, 3)
    for perm in itertools.permutations(range(4)):
        builder = ProgramBuilder("transpose")
        src = builder.placeholder("src", kind)
        dest = builder.placeholder("dest", kind.with_shape(tuple(kind.shape[a] for a in perm)))
        builder.emit("op", Transpose(perm), dest, src)
        assert_same_bits(builder.finish(), {"src": numbered(kind)}, isas=["generic"])


def test_transpose_into_a_padded_buffer_and_a_channel_slice() -> None:
    for kind in kinds(2, 3, 6, 17)[:2]:
        image = kind.with_shape((2, 6, 17, 3))
        wide = kind.with_shape((2, 6, 17, 8))
        builder = ProgramBuilder("transpose")
        src, dest = builder.placeholder("src", kind), builder.placeholder("dest", image)
        padded = builder.activation("padded", image, (1, 1, 1, 1))
        whole = builder.activation("whole", wide)
        builder.emit("pad", FillPadding((1, 1, 1, 1)), padded)
        builder.emit("first", Transpose((0, 2, 3, 1)), padded, src)
        builder.emit("fill", Splat(0.0), whole)
        part = builder.view("part", whole, image, (0, 0, 0, 4))
        builder.emit("second", Transpose((0, 2, 3, 1)), part, src)
        builder.emit("out", ElementAdd(), dest, padded, part)
        assert_same_bits(builder.finish(), {"src": numbered(kind)})


def test_fast_paths_are_chosen() -> None:
    """Image in: interleaving; features out: squares; an axis of one: a copy."""
    wanted = {(1, 3, 224, 224): "transpose-interleaving", (1, 256, 7, 7): "transpose-square"}
    for shape, name in wanted.items():
        for kind, isa in itertools.product(kinds(*shape)[:2], (AVX2, AVX512_VNNI)):
            builder = ProgramBuilder("transpose")
            src = builder.placeholder("src", kind)
            dest = builder.placeholder("dest", kind.with_shape(tuple(shape[a] for a in (0, 2, 3, 1))))
            op = builder.emit("op", Transpose((0, 2, 3, 1)), dest, src)
            best = min(candidates(op, isa), key=lambda kernel: kernel.cost(op, isa))
            assert best.describe() == name
