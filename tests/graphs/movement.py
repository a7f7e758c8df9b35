"""Operators that move elements and compute nothing."""

from __future__ import annotations

import numpy as np

from tests.graphs.builder import Builder, Unfit, makes


@makes("Reshape")
def reshape(b: Builder, op: str) -> None:
    value = b.pick((1, 5))
    shape = value.array.shape
    new = b.choice(([0, -1], [-1], [*shape, 1], [shape[0], 1, *shape[1:]]))
    b.add(op, [value.name, b.constant(new, np.int64)], exact=True)


@makes("Flatten")
def flatten(b: Builder, op: str) -> None:
    b.add(op, [b.pick((1, 5)).name], exact=True, axis=b.choice((1, 0)))


@makes("Transpose")
def transpose(b: Builder, op: str) -> None:
    value = b.pick((1, 5))
    order = [int(i) for i in b.rng.permutation(value.rank)]
    b.add(op, [value.name], exact=True, perm=None if b.chance(5) else order)


@makes("Concat")
def concat(b: Builder, op: str) -> None:
    value = b.pick((1, 4))
    axis = b.number(0, value.rank - 1)
    alike = [
        v.name
        for v in b.values
        if v.rank == value.rank
        and v.array.dtype == np.float32
        and all(
            i == axis or n == m for i, (n, m) in enumerate(zip(v.array.shape, value.array.shape, strict=True))
        )
    ]
    others = [b.choice(alike) for _ in range(b.number(0, 2))]
    # onnxruntime joins empty parts whatever their other axes, ONNX does not: a free batch may differ.
    if b.chance(4) and value.array.size:
        others.append(b.constant(b.floats(value.array.shape)))
    b.add(op, [value.name, *others], exact=True, axis=axis)


@makes("Split")
def split(b: Builder, op: str) -> None:
    value = b.pick((1, 4))
    axis = b.number(0, value.rank - 1)
    size = value.array.shape[axis]
    first = b.number(0, size)
    inputs, attributes = b.listed(op, "split", [first, size - first])
    b.add(op, [value.name, *inputs], outputs=2, exact=True, axis=axis, **attributes)


@makes("Slice")
def slices(b: Builder, op: str) -> None:
    value = b.pick((1, 4))
    axis = b.number(0, value.rank - 1)
    start, end = b.number(-3, 3), b.choice((2**31 - 1, 1, 2, -1))
    if b.has_attribute(op, "starts"):
        b.add(op, [value.name], exact=True, starts=[start], ends=[end], axes=[axis])
        return
    step = b.choice((1, 2, -1))
    if step < 0:
        start, end = -1, -(2**31)
    b.add(op, [value.name, *(b.constant([n], np.int64) for n in (start, end, axis, step))], exact=True)


@makes("Pad")
def pad(b: Builder, op: str) -> None:
    value = b.pick((1, 4), least=1)
    mode = b.choice(("constant", "edge", "reflect"))
    pads = [
        b.number(0, 0 if mode == "reflect" and n == 1 else min(n - 1, 2) if mode == "reflect" else 2)
        for n in value.array.shape * 2
    ]
    inputs, attributes = b.listed(op, "pads", pads)
    if inputs and mode == "constant" and b.chance():
        inputs.append(b.constant(np.float32(0.25)))
    b.add(op, [value.name, *inputs], exact=True, mode=mode, **attributes)


@makes("Gather")
def gather(b: Builder, op: str) -> None:
    value = b.pick((1, 4), least=1)
    axis = b.number(0, value.rank - 1)
    low = -value.array.shape[axis] if b.opset >= 11 else 0
    shape = b.choice(((), (2,), (1, 3)))
    indices = b.constant(b.rng.integers(low, value.array.shape[axis], shape), b.choice((np.int64, np.int32)))
    b.add(op, [value.name, indices], exact=True, axis=axis)


@makes("GatherElements")
def gather_elements(b: Builder, op: str) -> None:
    value = b.pick((1, 4), least=1)
    axis = b.number(0, value.rank - 1)
    indices = b.constant(b.rng.integers(0, value.array.shape[axis], value.array.shape), np.int64)
    b.add(op, [value.name, indices], exact=True, axis=axis)


@makes("GatherND")
def gather_nd(b: Builder, op: str) -> None:
    value = b.pick((2, 4), least=1)
    indices = b.rng.integers(0, value.array.shape[:2], (3, 2))
    b.add(op, [value.name, b.constant(indices, np.int64)], exact=True)


@makes("Scatter", "ScatterElements")
def scatter_elements(b: Builder, op: str) -> None:
    value = b.pick((1, 4), least=1)
    axis = b.number(0, value.rank - 1)
    size = value.array.shape[axis]
    order = np.broadcast_to(b.rng.permutation(size), np.moveaxis(value.array, axis, -1).shape)
    updates = b.constant(b.floats(value.array.shape))
    indices = b.constant(np.ascontiguousarray(np.moveaxis(order, -1, axis)), np.int64)
    b.add(op, [value.name, indices, updates], exact=True, axis=axis)


@makes("ScatterND")
def scatter_nd(b: Builder, op: str) -> None:
    value = b.pick((2, 4), least=1)
    updates = b.constant(b.floats(value.array.shape[1:])[np.newaxis])
    b.add(op, [value.name, b.constant([[0]], np.int64), updates], exact=True)


@makes("Expand")
def expand(b: Builder, op: str) -> None:
    value = b.pick((1, 4))
    shape = [n if n != 1 else b.number(1, 3) for n in value.array.shape]
    b.add(op, [value.name, b.constant([*([2] if b.chance(4) else []), *shape], np.int64)], exact=True)


@makes("Tile")
def tile(b: Builder, op: str) -> None:
    value = b.pick((1, 4))
    b.add(op, [value.name, b.constant([b.number(1, 2) for _ in range(value.rank)], np.int64)], exact=True)


@makes("Squeeze", "Unsqueeze")
def squeeze(b: Builder, op: str) -> None:
    value = b.pick((1, 4))
    ones = [i for i, n in enumerate(value.array.shape) if n == 1]
    if op == "Squeeze" and not ones:
        raise Unfit
    axes = [b.choice(ones)] if op == "Squeeze" else [b.number(0, value.rank)]
    inputs, attributes = b.listed(op, "axes", axes)
    b.add(op, [value.name, *inputs], exact=True, **attributes)


@makes("DepthToSpace", "SpaceToDepth")
def blocks(b: Builder, op: str) -> None:
    value = b.input(b.floats([1, 4, 2 * b.number(1, 3), 2]))
    mode = {"mode": b.choice(("DCR", "CRD"))} if b.has_attribute(op, "mode") else {}
    b.add(op, [value.name], exact=True, blocksize=2, **mode)


@makes("Trilu")
def triangle(b: Builder, op: str) -> None:
    value = b.pick((2, 4))
    b.add(op, [value.name, b.constant(b.number(-1, 2), np.int64)], exact=True, upper=b.number(0, 1))


@makes("ReverseSequence")
def reversed_rows(b: Builder, op: str) -> None:
    value = b.pick((2, 4), least=1)
    lengths = b.rng.integers(1, value.array.shape[1] + 1, value.array.shape[0])
    b.add(op, [value.name, b.constant(lengths, np.int64)], exact=True, batch_axis=0, time_axis=1)


@makes("Shape", "Size")
def sizes(b: Builder, op: str) -> None:
    b.add(op, [b.pick((1, 5)).name], exact=True)


@makes("ConstantOfShape", "EyeLike")
def made(b: Builder, op: str) -> None:
    if op == "EyeLike":
        b.add(op, [b.pick(2).name], exact=True)
    else:
        b.add(op, [b.constant(b.shape(b.number(1, 3)), np.int64)], exact=True)


@makes("OneHot")
def one_hot(b: Builder, op: str) -> None:
    indices = b.pick((1, 3), np.int64, exact=True)
    b.add(op, [indices.name, b.constant(5, np.int64), b.constant([0.0, 1.0], np.float32)], exact=True)
