"""Import of optional values that are tensors or absent.

https://onnx.ai/onnx/operators/ OptionalGetElement, OptionalHasElement
"""

from __future__ import annotations

import numpy as np

from qglow.graph.ops.shape import Identity
from qglow.importer.node import ImportNode, ImportRule


def import_get_element(node: ImportNode) -> None:
    """Import OptionalGetElement of a tensor, which is that tensor."""
    node.emit(Identity(), node.value(0))


def import_has_element(node: ImportNode) -> None:
    """Import OptionalHasElement: a tensor is there, and an input that is left out is not."""
    node.constant(np.array(node.has_input(0)))


RULES: dict[str, ImportRule] = {
    "OptionalGetElement": ImportRule(import_get_element, newest=28),
    "OptionalHasElement": ImportRule(import_has_element, newest=28),
}
