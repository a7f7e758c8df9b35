"""Import of pools. https://onnx.ai/onnx/operators/onnx__MaxPool.html, onnx__AveragePool.html"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from qglow.core.types import ElementType
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Mul
from qglow.graph.ops.functions import Abs, PowerOf
from qglow.graph.ops.pool import AveragePool, GlobalAveragePool, MaxPool
from qglow.graph.ops.reduce import ReduceSum
from qglow.graph.ops.shape import Cast, Identity, Reshape
from qglow.graph.traits import SlidingWindow
from qglow.importer.max_places import emit_max_places
from qglow.importer.node import ImportNode, ImportRule
from qglow.importer.volumes import RANK, emit_pool_over_volume
from qglow.importer.windows import as_pads, emit_windowed, image, read_window


def import_max_pool(node: ImportNode) -> None:
    """Import MaxPool, and its places where something reads them."""
    node.ignore("storage_order")  # only numbers the elements of Indices
    ceil = node.integer("ceil_mode", 0) != 0
    kind = node.kind()
    if kind.is_plain_integer and kind.element.size == 1 and node.value(0).data is None:
        _integer_max_pool(node)
        return
    _windowed(node, lambda w: MaxPool(w.kernel, w.strides, w.pads, w.dilations, ceil_mode=ceil))
    if node.is_used(1):
        counts = node.results[node.proto.output[0]].type.shape[2:]
        emit_max_places(node, node.integers("kernel_shape", ()), counts)


def _integer_max_pool(node: ImportNode) -> None:
    """Emit the maximum of integers of 8 bits as that of the floats, which hold them all."""
    node.require(not node.is_used(1), "its Indices are used, of integers")
    real = node.emit(Cast(to=ElementType.FLOAT), node.value(0), part="real")
    largest = node.emit_by(import_max_pool, "MaxPool", [real], "largest")
    node.emit(Cast(to=node.kind().element), largest)


def import_average_pool(node: ImportNode) -> None:
    """Import AveragePool."""
    ceil = node.integer("ceil_mode", 0) != 0
    _windowed(node, partial(_mean, ceil=ceil, padded=node.integer("count_include_pad", 0) != 0))


def _mean(window: SlidingWindow, ceil: bool = False, padded: bool = True) -> Operator:
    w = window
    return AveragePool(
        w.kernel, w.strides, w.pads, dilations=w.dilations, ceil_mode=ceil, count_include_pad=padded
    )


def import_lp_pool(node: ImportNode) -> None:
    """Import LpPool: the p-th root of the sum of |x|^p, which is a mean times the number of elements."""
    power = node.integer("p", 2)
    node.require(power >= 1, f"p {power}")
    kernel = node.integers("kernel_shape", ())
    ceil = node.integer("ceil_mode", 0) != 0
    sizes = node.emit(PowerOf(float(power)), node.emit(Abs(), node.value(0), part="sizes"), part="powers")
    if node.rank() == RANK:
        node.require(not ceil, "ceil_mode 1 over volumes")
        mean = emit_pool_over_volume(node, sizes, kernel, _mean, part="means")
    else:
        shape = sizes.type.shape
        if len(shape) == 3:
            sizes = node.emit(Reshape(shape=(*shape[:2], 1, shape[2])), sizes, part="image")
        window = read_window(node, kernel)
        window = _with_last(window, sizes.type.shape[2:]) if ceil else window
        mean = node.emit(_mean(window), sizes, part="means")
        if len(shape) == 3:
            mean = node.emit(Reshape(shape=(*shape[:2], mean.type.shape[3])), mean, part="line")
    count = node.part_constant("count", np.array(math.prod(kernel), np.float32))
    node.emit(PowerOf(1 / power), node.emit(Mul(), mean, count, part="sums"))


def _with_last(window: SlidingWindow, sizes: Sequence[int]) -> SlidingWindow:
    """The window with the padding at the ends that its last places need: zeros add nothing to a sum.

    A last place that begins in the padding at the end is none. sizes: of the image.
    """
    pads = list(window.pads)
    for axis, size in enumerate(sizes):
        reach = window.dilations[axis] * (window.kernel[axis] - 1) + 1
        before, stride = pads[axis] + size, window.strides[axis]
        last = math.ceil((before + pads[axis + 2] - reach) / stride)
        last -= last * stride >= before
        pads[axis + 2] = max(0, last * stride + reach - before)
    return replace(window, pads=as_pads(tuple(pads)))


def import_global_lp_pool(node: ImportNode) -> None:
    """Import GlobalLpPool: the p-th root of the sum of |x|^p over all spatial dimensions."""
    power = node.integer("p", 2)
    node.require(power >= 1, f"p {power}")
    sizes = node.emit(PowerOf(float(power)), node.emit(Abs(), node.value(0), part="sizes"), part="powers")
    total = node.emit(ReduceSum(tuple(range(2, node.rank())), True), sizes, part="sums")
    node.emit(PowerOf(1 / power), total)


def _windowed(node: ImportNode, make: Callable[[SlidingWindow], Operator]) -> None:
    kernel = node.integers("kernel_shape", ())
    if node.rank() == RANK:
        node.emit(Identity(), emit_pool_over_volume(node, node.value(0), kernel, make, part="volume"))
        return
    emit_windowed(node, make(read_window(node, kernel)), image(node))


def import_global_average_pool(node: ImportNode) -> None:
    """Import GlobalAveragePool over any spatial dimensions."""
    _global(node, GlobalAveragePool())


def import_global_max_pool(node: ImportNode) -> None:
    """Import GlobalMaxPool over any spatial dimensions: a MaxPool with a window of the whole image."""
    shape = _as_image(node)
    _global(node, MaxPool(kernel=(shape[2], shape[3])))


def _global(node: ImportNode, operator: Operator) -> None:
    x, shape = node.value(0), _as_image(node)
    node.require(min(shape[2:]) >= 1, f"input has shape {list(node.kind().shape)}, it has no pixels")
    if node.rank() == 4:
        node.emit(operator, x)
        return
    value = node.emit(Reshape(shape=shape), x, part="image")
    value = node.emit(operator, value, part="global")
    node.emit(Reshape(shape=(*shape[:2], *(1,) * (node.rank() - 2))), value)


def _as_image(node: ImportNode) -> tuple[int, int, int, int]:
    """The shape of the input with all its spatial dimensions in two."""
    shape = node.kind().shape
    node.require(len(shape) >= 3, f"input has {len(shape)} dimensions; at least three are needed")
    if len(shape) == 4:
        return shape[0], shape[1], shape[2], shape[3]
    return shape[0], shape[1], 1, math.prod(shape[2:])


RULES: dict[str, ImportRule] = {
    "AveragePool": ImportRule(import_average_pool, newest=22),
    "GlobalAveragePool": ImportRule(import_global_average_pool, newest=22),
    "GlobalLpPool": ImportRule(import_global_lp_pool, newest=22),
    "GlobalMaxPool": ImportRule(import_global_max_pool, newest=22),
    "LpPool": ImportRule(import_lp_pool, newest=22),
    "MaxPool": ImportRule(import_max_pool, newest=22),
}
