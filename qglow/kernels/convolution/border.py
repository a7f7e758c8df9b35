"""Copies of an image with a border, for convolutions whose source has none in memory.

Scratch memory holds one image at a time. A copy costs a fraction of the convolution that reads it.
"""

from __future__ import annotations

from qglow.instructions.program import Padding
from qglow.kernels.emit.builder import I8, Index, Number, Value, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.operand import Memory


def emit_bordered_copy(
    e: Emitter, image: Index, src: Memory, border: Padding, dest: Value, lanes: int
) -> None:
    """Copy image number `image` of `src` to dense memory at `dest`, with `border` (top, left, bottom, right).

    The border holds zero points for int8, 0.0 for floats: both stand for zero. `lanes`: bytes of a vector
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
    """Copy one row of pixels: as one run of bytes where they adjoin in `src`, else pixel by pixel."""
    _, _, width, channels = src.shape
    pixel = channels * src.element_bytes
    if src.strides[2] == channels or width == 1:
        copy_bytes(e, dest, src.at(e, *place, 0, 0), width * pixel, lanes)
        return
    with e.loop(0, width, name="copied_pixel") as x:
        copy_bytes(e, e.offset(dest, e.scaled(x, pixel)), src.at(e, *place, x, 0), pixel, lanes)


def copy_bytes(e: Emitter, dest: Value, src: Value, count: int, lanes: int) -> None:
    """Copy `count` bytes, known at compile time, in vectors of `lanes` bytes and a tail of powers of two."""
    whole = count - count % lanes
    if whole:
        with e.loop(0, whole, lanes, name="copy") as at:
            e.store(e.load(e.offset(src, at), vec(I8, lanes)), e.offset(dest, at))
    for at, size in _tail(whole, count):
        e.store(e.load(e.offset(src, at), vec(I8, size)), e.offset(dest, at))


def fill_bytes(e: Emitter, dest: Value, count: int, value: Number, lanes: int) -> None:
    """Set `count` bytes, known at compile time, to one value; vectors and tail are as in `copy_bytes`."""
    whole = count - count % lanes
    if whole:
        with e.loop(0, whole, lanes, name="fill") as at:
            e.store(scalar(vec(I8, lanes), value), e.offset(dest, at))
    for at, size in _tail(whole, count):
        e.store(scalar(vec(I8, size), value), e.offset(dest, at))


def _tail(start: int, end: int) -> list[tuple[int, int]]:
    """Split the bytes from `start` up to `end` into (position, size) of descending powers of two."""
    pieces = []
    while start < end:
        size = 1 << ((end - start).bit_length() - 1)
        pieces.append((start, size))
        start += size
    return pieces
