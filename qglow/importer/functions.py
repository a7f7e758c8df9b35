"""Import of functions of one variable. https://onnx.ai/onnx/operators/ under the same names"""

from __future__ import annotations

from functools import partial

import numpy as np

from qglow.graph.graph import Value
from qglow.graph.ops.functions import Abs, Neg, Sign
from qglow.graph.ops.selection import Max, Min
from qglow.graph.ops.shape import Identity
from qglow.importer.node import ImportNode, ImportRule
from qglow.interchange.functions import FUNCTIONS, OnnxFunction


def import_function(function: OnnxFunction, node: ImportNode) -> None:
    """Import an operator of one input, its fields from the attributes of the same names."""
    fields = {name: _attribute(node, name, default) for name, default in function.attributes().items()}
    node.emit(function.operator(**fields), node.value(0))


def _attribute(node: ImportNode, name: str, default: float | str) -> float | str:
    """An attribute of its default's type."""
    return node.string(name, default) if isinstance(default, str) else node.number(name, default)


def import_absolute(node: ImportNode) -> None:
    """Import Abs."""
    absolute(node, node.value(0))


def absolute(node: ImportNode, x: Value, part: str = "") -> Value:
    """Emit the absolute values of x, of integers as the larger of x and -x."""
    if x.type.is_float or x.type.is_quantized:
        return node.emit(Abs(), x, part=part)
    if x.type.element.is_unsigned:
        return node.emit(Identity(), x, part=part)
    return node.emit(Max(), x, node.emit(Neg(), x, part="negative"), part=part)


def import_sign(node: ImportNode) -> None:
    """Import Sign, of integers as the nearest number within -1 and 1."""
    x = node.value(0)
    if x.type.is_float or x.type.is_quantized:
        node.emit(Sign(), x)
        return
    element = x.type.element
    one = node.part_constant("one", np.ones((), element.dtype))
    if element.is_unsigned:
        node.emit(Min(), x, one)
        return
    least = node.part_constant("least", -np.ones((), element.dtype))
    node.emit(Min(), node.emit(Max(), x, least, part="above"), one)


RULES: dict[str, ImportRule] = {
    f.operator.name: ImportRule(partial(import_function, f), f.newest) for f in FUNCTIONS
} | {
    "Abs": ImportRule(import_absolute, newest=13),
    "Sign": ImportRule(import_sign, newest=13),
}
