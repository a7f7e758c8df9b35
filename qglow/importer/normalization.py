"""Import of normalizations. https://onnx.ai/onnx/operators/ BatchNormalization, LayerNormalization,
InstanceNormalization, LRN
"""

from __future__ import annotations

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
from qglow.graph.ops.shape import Reshape
from qglow.importer.node import ImportNode, ImportRule


def import_batch_normalization(node: ImportNode) -> None:
    """Import BatchNormalization for inference; with parameters that are computed, as its arithmetic."""
    node.ignore("momentum", "is_test")  # both are about training
    node.require(node.integer("training_mode", 0) == 0, "training_mode 1; export the model for inference")
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
