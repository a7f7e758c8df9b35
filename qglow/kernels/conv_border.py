"""Copies of an image with a border, for convolutions whose source has none.

One image lies in scratch at a time: a fraction of the work of any convolution that needs it.
"""

from __future__ import annotations

from qglow.instructions.program import Padding
from qglow.kernels.builder import I8, Emitter, Index, Value, scalar, vec
from qglow.kernels.operand import Memory


def emit_bordered_copy(
    e: Emitter, image: Index, src: Memory, border: Padding, dest: Value, lanes: int
) -> None:
    """Write image number `image` of `src` to dense memory at `dest`, with `border` around it.

    The border holds the zero point of int8 elements, 0.0 of floats. `lanes` is the bytes of a
    register.
    """
    top, left, bottom, right = border
    _, height, width, channels = src.shape
    pixel = channels * src.element_bytes
    row_bytes = (left + width + right) * pixel
    value = 0 if src.is_float else src.zero_point
    fill_bytes(e, dest, top * row_bytes, value, lanes)
    fill_bytes(e, e.offset(dest, (top + height) * row_bytes), bottom * row_bytes, value, lanes)
    with e.loop(0, height, name="copied_row") as y:
        row = e.offset(dest, e.plus(e.scaled(y, row_bytes), top * row_bytes))
        fill_bytes(e, row, left * pixel, value, lanes)
        fill_bytes(e, e.offset(row, (left + width) * pixel), right * pixel, value, lanes)
        _copy_pixels(e, src, (image, y), e.offset(row, left * pixel), lanes)


def _copy_pixels(e: Emitter, src: Memory, place: tuple[Index, Index], dest: Value, lanes: int) -> None:
    """One row of pixels, whole where they adjoin."""
    _, _, width, channels = src.shape
    pixel = channels * src.element_bytes
    if src.strides[2] == channels or width == 1:
        copy_bytes(e, dest, src.at(e, *place, 0, 0), width * pixel, lanes)
        return
    with e.loop(0, width, name="copied_pixel") as x:
        copy_bytes(e, e.offset(dest, e.scaled(x, pixel)), src.at(e, *place, x, 0), pixel, lanes)


def copy_bytes(e: Emitter, dest: Value, src: Value, count: int, lanes: int) -> None:
    """Copy a known number of bytes."""
    whole = count - count % lanes
    if whole:
        with e.loop(0, whole, lanes, name="copy") as at:
            e.store(e.load(e.offset(src, at), vec(I8, lanes)), e.offset(dest, at))
    for at, size in _tail(whole, count):
        e.store(e.load(e.offset(src, at), vec(I8, size)), e.offset(dest, at))


def fill_bytes(e: Emitter, dest: Value, count: int, value: int, lanes: int) -> None:
    """Set a known number of bytes to one value."""
    whole = count - count % lanes
    if whole:
        with e.loop(0, whole, lanes, name="fill") as at:
            e.store(scalar(vec(I8, lanes), value), e.offset(dest, at))
    for at, size in _tail(whole, count):
        e.store(scalar(vec(I8, size), value), e.offset(dest, at))


def _tail(start: int, end: int) -> list[tuple[int, int]]:
    """The bytes from `start` up to `end` as (position, power of two)."""
    pieces = []
    while start < end:
        size = 1 << ((end - start).bit_length() - 1)
        pieces.append((start, size))
        start += size
    return pieces
