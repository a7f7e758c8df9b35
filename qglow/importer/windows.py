"""Attributes that convolutions and pools share: kernel, strides, dilations, pads, auto_pad.

Windows are two-dimensional; importer.volumes has those over three dimensions. Over one, [N, C, L], they run
over images of height 1: `image` makes them, and `emit_windowed` takes the height from the result again.
"""

from __future__ import annotations

from qglow.graph.graph import Value
from qglow.graph.operator import Operator
from qglow.graph.ops.conv import convolution
from qglow.graph.ops.elementwise import Add
from qglow.graph.ops.shape import Reshape
from qglow.graph.traits import SlidingWindow
from qglow.importer.node import ImportNode
from qglow.importer.run_time_weights import emit_product, is_known
from qglow.numerics.windows import Pads, Pair


def spatial_sizes(node: ImportNode) -> tuple[int, ...]:
    """The one to three spatial dimensions of a node's first input. Refuses others."""
    shape = node.kind(0).shape
    supported = len(shape) in (3, 4, 5)
    node.require(
        supported,
        f"input has {len(shape)} dimensions; three (NCL), four (NCHW) and five (NCDHW) are supported",
    )
    return shape[2:]


def read_window(node: ImportNode, kernel: tuple[int, ...]) -> SlidingWindow:
    """The window of a node over its first input, which must have one or two spatial dimensions."""
    strides, dilations, pads = read_axes(node, kernel)
    node.require(
        node.rank() < 5, f"input has {node.rank()} dimensions; three (NCL) and four (NCHW) are supported"
    )
    return SlidingWindow(as_pair(kernel), as_pair(strides), as_pads(pads), as_pair(dilations))


def read_axes(node: ImportNode, kernel: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Strides, dilations and pads over all spatial dimensions."""
    strides, dilations = read_steps(node, kernel)
    return strides, dilations, _pads(node, spatial_sizes(node), kernel, strides, dilations)


def read_steps(node: ImportNode, kernel: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Strides and dilations, checked against the number of spatial dimensions, like the kernel."""
    rank = len(spatial_sizes(node))
    ones = (1,) * rank
    strides, dilations = node.integers("strides", ones), node.integers("dilations", ones)
    for name, values in (("kernel_shape", kernel), ("strides", strides), ("dilations", dilations)):
        node.require(len(values) == rank, f"{name} {list(values)} is not {rank}-dimensional")
        node.require(min(values) >= 1, f"{name} {list(values)} is not positive")
    return strides, dilations


def read_pads(node: ImportNode, rank: int) -> tuple[int, ...]:
    """Explicit pads, those before every axis and then those after. Refuses negative ones."""
    explicit = node.integers("pads", (0,) * 2 * rank)
    node.require(len(explicit) == 2 * rank, f"pads {list(explicit)} are not {rank}-dimensional")
    node.require(min(explicit) >= 0, f"pads {list(explicit)} are negative")
    return explicit


def read_auto_pad(node: ImportNode) -> str:
    """Read the mode that determines pads. Refuses a mode that the definition does not know."""
    mode = node.string("auto_pad", "NOTSET")
    known = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    node.require(mode in known, f"auto_pad {mode}; supported are {', '.join(known)}")
    return mode


def image(node: ImportNode, index: int = 0) -> Value:
    """An operand as it is, or of one spatial dimension with a height of 1 before it."""
    value = node.value(index)
    shape = value.type.shape
    if len(shape) != 3:
        return value
    return node.emit(Reshape(shape=(*shape[:2], 1, shape[2])), value, part=f"image{index}")


def emit_windowed(node: ImportNode, operator: Operator, *inputs: Value | None) -> Value:
    """Add an operator over images, and give its result as many axes as the node's input has."""
    if node.rank() != 3:
        return node.emit(operator, *inputs)
    result = node.emit(operator, *inputs, part="image", is_core=True)
    shape = result.type.shape
    return node.emit(Reshape(shape=(*shape[:2], shape[3])), result)


def emit_convolution(node: ImportNode, window: SlidingWindow, group: int, x: Value, w: Value) -> None:
    """Add a convolution with the node's bias, and give its result as many axes as the node's input has."""
    if node.rank() != 3:
        convolved(node, window, group, x, w)
        return
    result = convolved(node, window, group, x, w, part="image")
    shape = result.type.shape
    node.emit(Reshape(shape=(*shape[:2], shape[3])), result)


def convolved(
    node: ImportNode,
    window: SlidingWindow,
    group: int,
    x: Value,
    w: Value,
    part: str = "",
    bias_index: int = 2,
) -> Value:
    """Add a convolution over images with the node's bias; a computed one is added.

    w: the weights, made of the node's second input. Computed ones become a product of matrices.
    """
    bias, known = node.optional(bias_index), is_known(node.value(1))
    if known and (bias is None or is_known(bias)):
        return node.emit(convolution(window, group), x, w, bias, part=part, is_core=True)
    if bias is None:
        return emit_product(node, window, group, x, w, part)
    channels = w.type.shape[0]
    node.require(bias.type.shape == (channels,), f"bias {list(bias.type.shape)} is not [{channels}]")
    if known:
        result = node.emit(convolution(window, group), x, w, part="product", is_core=True)
    else:
        result = emit_product(node, window, group, x, w, "product")
    column = node.emit(Reshape(shape=(1, channels, 1, 1)), bias, part="bias")
    return node.emit(Add(), result, column, part=part)


def as_pair(values: tuple[int, ...]) -> Pair:
    """One number for each axis of an image."""
    return (1, values[0]) if len(values) == 1 else (values[0], values[1])


def as_pads(values: tuple[int, ...]) -> Pads:
    """ONNX's pads of one or two axes as top, left, bottom, right."""
    return (0, values[0], 0, values[1]) if len(values) == 2 else (values[0], values[1], values[2], values[3])


def _pads(
    node: ImportNode,
    sizes: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
) -> tuple[int, ...]:
    explicit, mode = read_pads(node, len(sizes)), read_auto_pad(node)
    if mode == "NOTSET":
        return explicit
    if mode == "VALID":
        return (0,) * 2 * len(sizes)
    begins, ends = [], []
    for size, k, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        total = max((-(-size // stride) - 1) * stride + (k - 1) * dilation + 1 - size, 0)
        small, large = total // 2, total - total // 2
        begins.append(small if mode == "SAME_UPPER" else large)
        ends.append(large if mode == "SAME_UPPER" else small)
    return (*begins, *ends)
