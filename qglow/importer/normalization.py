"""Import of normalizations. https://onnx.ai/onnx/operators/onnx__BatchNormalization.html"""

from __future__ import annotations

from qglow.graph.ops.normalization import BatchNormalization
from qglow.importer.node import ImportNode, Rule


def import_batch_normalization(node: ImportNode) -> None:
    """BatchNormalization for inference, with stored mean and variance."""
    node.ignore("momentum")  # only updates the stored statistics in training
    node.require(node.integer("training_mode", 0) == 0, "training_mode 1; export the model for inference")
    node.require(node.integer("spatial", 1) == 1, "spatial 0; only statistics per channel are supported")
    node.require_single_output()
    operator = BatchNormalization(epsilon=node.number("epsilon", 1e-5))
    node.emit(operator, *(node.value(index) for index in range(5)))


RULES: dict[str, Rule] = {"BatchNormalization": Rule(import_batch_normalization, newest=15)}
