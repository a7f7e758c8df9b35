"""Import of functions of one variable. https://onnx.ai/onnx/operators/ under the same names"""

from __future__ import annotations

from functools import partial

import numpy as np

from qglow.graph.graph import Value
from qglow.graph.ops.elementwise import Sub
from qglow.graph.ops.functions import Abs, Neg
from qglow.graph.ops.selection import Max
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
    """Import Abs, of integers as the larger of x and -x."""
    x = node.value(0)
    if x.type.is_float or x.type.is_quantized:
        node.emit(Abs(), x)
        return
    node.emit(Max(), x, _minus(node, x, part="negative"))


def import_negative(node: ImportNode) -> None:
    """Import Neg, of integers as 0 - x."""
    x = node.value(0)
    if x.type.is_float or x.type.is_quantized:
        node.emit(Neg(), x)
        return
    _minus(node, x)


def _minus(node: ImportNode, x: Value, part: str = "") -> Value:
    zero = node.part_constant("zero", np.zeros((), x.type.element.dtype))
    return node.emit(Sub(), zero, x, part=part)


RULES: dict[str, ImportRule] = {
    f.operator.name: ImportRule(partial(import_function, f), f.newest) for f in FUNCTIONS
} | {
    "Abs": ImportRule(import_absolute, newest=13),
    "Neg": ImportRule(import_negative, newest=13),
}
