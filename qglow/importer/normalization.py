"""Import of normalizations. https://onnx.ai/onnx/operators/ BatchNormalization, LayerNormalization,
InstanceNormalization, LRN
"""

from __future__ import annotations

import math

import numpy as np

from qglow.graph.graph import Value
from qglow.graph.ops.elementwise import Add, Div, Mul, Sub
from qglow.graph.ops.functions import Reciprocal, Sqrt
from qglow.graph.ops.normalization import (
    LRN,
    BatchNormalization,
    InstanceNormalization,
    LayerNormalization,
)
from qglow.graph.ops.reduce import ReduceMean
from qglow.graph.ops.shape import Reshape, Transpose
from qglow.importer.node import ImportNode, ImportRule


def import_batch_normalization(node: ImportNode) -> None:
    """Import BatchNormalization for inference; with parameters that are computed, as its arithmetic.

    In training mode, which layers without running statistics keep, those of the batch count.
    """
    node.ignore("is_test")
    if node.integer("training_mode", 0) != 0:
        _import_own_statistics(node)
        return
    node.ignore("momentum")
    node.require(node.integer("spatial", 1) == 1, "spatial 0; only statistics per channel are supported")
    node.require_single_output()
    epsilon, parameters = node.number("epsilon", 1e-5), [node.plain(index) for index in range(1, 5)]
    if all(value.is_constant for value in parameters):
        node.emit(BatchNormalization(epsilon=epsilon), node.value(0), *parameters)
        return
    node.require(node.rank() >= 2, f"input has {node.rank()} dimensions; at least two are needed")
    column = Reshape(shape=(node.kind().shape[1], *(1,) * (node.rank() - 2)))
    names = ("scale", "bias", "mean", "variance")
    scale, bias, mean, variance = (
        node.emit(column, value, part=name) for name, value in zip(names, parameters, strict=True)
    )
    shifted = node.emit(
        Add(), variance, node.part_constant("epsilon", np.array(epsilon, np.float32)), part="shifted"
    )
    centred = node.emit(Sub(), node.value(0), mean, part="centred")
    normal = node.emit(Div(), centred, node.emit(Sqrt(), shifted, part="deviation"), part="normal")
    node.emit(Add(), node.emit(Mul(), normal, scale, part="scaled"), bias)


def _import_own_statistics(node: ImportNode) -> None:
    """Import BatchNormalization by statistics of the whole batch, and what follows from them."""
    node.require(node.rank() >= 2, f"input has {node.rank()} dimensions; at least two are needed")
    shape, operator = node.kind().shape, InstanceNormalization(epsilon=node.number("epsilon", 1e-5))
    scale, bias, momentum = node.value(1), node.value(2), node.number("momentum", 0.9)
    if len(shape) > 2 and shape[0] == 1:
        node.emit(operator, node.value(0), scale, bias)
    else:
        # All elements of a channel in one row, as of one image.
        size = math.prod(shape) // max(shape[1], 1)
        image = node.emit(Reshape(shape=(1, shape[1], size)), _by_channel(node, "channels"), part="image")
        normal = node.emit(operator, image, scale, bias, part="normal")
        swapped = (shape[1], shape[0], *shape[2:])
        rows = node.emit(Reshape(shape=swapped), normal, part="rows")
        node.emit(Transpose(_swapped(len(shape))), rows)
    if not (node.is_used(1) or node.is_used(2)):
        return
    axes, by_channel = tuple(range(1, len(shape))), _by_channel(node, "of_channels")
    mean = node.emit(ReduceMean(axes), by_channel, part="mean")
    centred = node.emit(Sub(), by_channel, mean, part="centred")
    squares = node.emit(Mul(), centred, centred, part="squares")
    variance = node.emit(ReduceMean(axes), squares, part="variance")
    for output, found, name in ((1, mean, "running_mean"), (2, variance, "running_variance")):
        if node.is_used(output):
            kept = node.part_constant(f"{name}_kept", np.array(momentum, np.float32))
            new = node.part_constant(f"{name}_new", np.array(1.0 - momentum, np.float32))
            row = node.emit(Reshape(shape=(shape[1],)), found, part=f"{name}_now")
            before = node.emit(Mul(), node.value(output + 2), kept, part=f"{name}_before")
            now = node.emit(Mul(), row, new, part=f"{name}_share")
            node.emit(Add(), before, now, output=output)


def _by_channel(node: ImportNode, part: str) -> Value:
    """The operand with its channels before its images."""
    return node.emit(Transpose(_swapped(node.rank())), node.value(0), part=part)


def _swapped(rank: int) -> tuple[int, ...]:
    """The order of axes that exchanges the first two."""
    return (1, 0, *range(2, rank))


def import_layer_normalization(node: ImportNode) -> None:
    """Import LayerNormalization; its mean and inverse deviation only where something reads them."""
    node.require(node.integer("stash_type", 1) == 1, "statistics in another type than float")
    axis, epsilon = node.axis(node.integer("axis", -1), node.rank()), node.number("epsilon", 1e-5)
    x = node.value(0)
    node.emit(LayerNormalization(axis=axis, epsilon=epsilon), x, node.value(1), node.optional(2))
    if not (node.is_used(1) or node.is_used(2)):
        return
    axes = tuple(range(axis, node.rank()))
    mean = node.emit(ReduceMean(axes), x, output=1) if node.is_used(1) else _part_mean(node, axes)
    if not node.is_used(2):
        return
    centred = node.emit(Sub(), x, mean, part="centred")
    variance = node.emit(
        ReduceMean(axes), node.emit(Mul(), centred, centred, part="squares"), part="variance"
    )
    shifted = node.emit(
        Add(), variance, node.part_constant("epsilon", np.array(epsilon, np.float32)), part="shifted"
    )
    node.emit(Reciprocal(), node.emit(Sqrt(), shifted, part="deviation"), output=2)


def _part_mean(node: ImportNode, axes: tuple[int, ...]) -> Value:
    return node.emit(ReduceMean(axes), node.value(0), part="mean")


def import_instance_normalization(node: ImportNode) -> None:
    """Import InstanceNormalization."""
    node.require(node.rank() >= 3, f"input has {node.rank()} dimensions; at least three are needed")
    operator = InstanceNormalization(epsilon=node.number("epsilon", 1e-5))
    node.emit(operator, *(node.value(index) for index in range(3)))


def import_lrn(node: ImportNode) -> None:
    """Import LRN."""
    operator = LRN(
        size=node.integer("size", 0),
        alpha=node.number("alpha", 1e-4),
        beta=node.number("beta", 0.75),
        bias=node.number("bias", 1.0),
    )
    node.emit(operator, node.value(0))


CONTRIBUTED: dict[str, ImportRule] = {"LayerNormalization": ImportRule(import_layer_normalization, newest=17)}
"""The same for models of older operator sets, where onnxruntime has its own."""
RULES: dict[str, ImportRule] = {
    "BatchNormalization": ImportRule(import_batch_normalization, newest=15),
    "InstanceNormalization": ImportRule(import_instance_normalization, newest=22),
    "LRN": ImportRule(import_lrn, newest=13),
    "LayerNormalization": ImportRule(import_layer_normalization, newest=17),
}
