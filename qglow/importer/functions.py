"""Import of functions of one variable. https://onnx.ai/onnx/operators/ under the same names"""

from __future__ import annotations

from functools import partial

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
    node.emit(Max(), x, node.emit(Neg(), x, part="negative"))


RULES: dict[str, ImportRule] = {
    f.operator.name: ImportRule(partial(import_function, f), f.newest) for f in FUNCTIONS
} | {
    "Abs": ImportRule(import_absolute, newest=13),
}
