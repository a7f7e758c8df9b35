"""C of operations that move elements."""

from __future__ import annotations

from qglow.csource.writer import SourceSite, emits, number
from qglow.instructions.ops.memory import Copy, FillPadding, Splat, stored_value
from qglow.instructions.ops.movement import Broadcast, Extract, Gather, Insert, InsertAt, Transpose
from qglow.instructions.ops.resize import Interpolate


@emits(Copy, Broadcast)
def copy(site: SourceSite) -> None:
    """Element by element; an axis of one place repeats."""
    with site.writer.loops(site.shape("dest")) as indices:
        site.store("dest", indices, site.load("src", indices))


@emits(Splat)
def splat(site: SourceSite) -> None:
    """One value everywhere."""
    with site.writer.loops(site.shape("dest")) as indices:
        site.store("dest", indices, _stored(site, site.operation.value))


@emits(FillPadding)
def fill_padding(site: SourceSite) -> None:
    """The border around an image, whose inside stays."""
    w, (batch, height, width, channels) = site.writer, site.shape("dest")
    top, left, bottom, right = site.operation.padding
    value = _stored(site, 0.0)
    _, row, column, _ = site.buffer("dest").layout.strides
    ends = f"y < {height + bottom}", f"x < {width + right}"
    rows = f"for (int32_t y = {-top}; {ends[0]}; y++)"
    columns = f"for (int32_t x = {-left}; {ends[1]}; x++)"
    outside = f"if (!(y >= 0 && y < {height} && x >= 0 && x < {width}))"
    with (
        w.loops((batch,), "n") as (n,),
        w.block(rows),
        w.block(columns),
        w.block(outside),
        w.loops((channels,), "c") as (c,),
    ):
        images = f"{n} * {site.buffer('dest').layout.strides[0]} + " if n != "0" else ""
        place = f"{images}y * {row} + x * {column} + {c}"
        w.line(f"store_{site.suffix('dest')}(dest, {place}, {value});")


@emits(Transpose)
def transpose(site: SourceSite) -> None:
    """Axes in another order."""
    perm = site.operation.perm
    with site.writer.loops(site.shape("dest")) as indices:
        source = [indices[perm.index(axis)] for axis in range(len(perm))]
        site.store("dest", indices, site.load("src", source))


@emits(Insert)
def insert(site: SourceSite) -> None:
    """A part of the result."""
    offsets = site.operation.offsets
    with site.writer.loops(site.shape("src")) as indices:
        places = [_plus(index, offset) for index, offset in zip(indices, offsets, strict=True)]
        site.store("dest", places, site.load("src", indices))


@emits(InsertAt)
def insert_at(site: SourceSite) -> None:
    """A part of a state, which begins at a place that an input says."""
    w, axis = site.writer, site.operation.axis
    room = site.shape("dest")[axis] - site.shape("src")[axis]
    w.line(f"int64_t first = {site.load('first', ('0',))};")
    w.line(f"first = first < 0 ? 0 : first > {room} ? {room} : first;")
    with w.loops(site.shape("src")) as indices:
        places = [f"(int32_t)first + {i}" if a == axis else i for a, i in enumerate(indices)]
        site.store("dest", places, site.load("src", indices))


@emits(Extract)
def extract(site: SourceSite) -> None:
    """A part of an operand, with steps."""
    o = site.operation
    steps = o.steps or (1,) * len(o.offsets)
    with site.writer.loops(site.shape("dest")) as indices:
        scaled = [
            i if step == 1 or i == "0" else f"{i} * {step}" for i, step in zip(indices, steps, strict=True)
        ]
        places = [_plus(index, offset) for index, offset in zip(scaled, o.offsets, strict=True)]
        site.store("dest", indices, site.load("src", places))


@emits(Gather)
def gather(site: SourceSite) -> None:
    """Places that indices choose; what is out of range is the nearest that is not."""
    w, axis = site.writer, site.operation.axis
    extent = site.shape("src")[axis]
    with w.loops(site.shape("dest")) as indices:
        w.line(f"int64_t chosen = {site.load('indices', (indices[axis],))};")
        w.line(f"chosen = chosen < 0 ? chosen + {extent} : chosen;")
        w.line(f"chosen = chosen < 0 ? 0 : chosen > {extent - 1} ? {extent - 1} : chosen;")
        places = ["(int32_t)chosen" if a == axis else i for a, i in enumerate(indices)]
        site.store("dest", indices, site.load("src", places))


@emits(Interpolate)
def interpolate(site: SourceSite) -> None:
    """Weighted sums of places along an axis, in ascending order, the offset last."""
    w, axis = site.writer, site.operation.axis
    taps = site.shape("indices")[1]
    with w.loops(site.shape("dest")) as indices:
        w.line("float sum = 0.0f;")
        for tap in range(taps):
            at = (indices[axis], str(tap))
            places = [f"({site.load('indices', at)})" if a == axis else i for a, i in enumerate(indices)]
            real = site.declared("float", f"real{tap}", site.real("src", places))
            product = site.declared("float", f"product{tap}", f"{real} * {site.load('weights', at)}")
            w.line(f"sum = {product};" if tap == 0 else f"sum = sum + {product};")
        if site.has("offsets"):
            w.line(f"sum = {site.load('offsets', (indices[axis],))} + sum;")
        site.store("dest", indices, site.quantized("dest", "sum"))


def _stored(site: SourceSite, value: float) -> str:
    stored = stored_value(value, site.kind("dest"))
    return number(stored) if site.kind("dest").is_float else str(int(stored))


def _plus(index: str, offset: int) -> str:
    if not offset:
        return index
    return str(offset) if index == "0" else f"{index} + {offset}"
