"""Import of quantization by ranges that are measured while the model runs.

https://onnx.ai/onnx/operators/onnx__DynamicQuantizeLinear.html
"""

from __future__ import annotations

import numpy as np

from qglow.core.types import ElementType
from qglow.graph.graph import Value
from qglow.graph.ops.elementwise import Add, Clip, Div, Sub
from qglow.graph.ops.functions import Round
from qglow.graph.ops.logic import Compare
from qglow.graph.ops.reduce import ReduceMax, ReduceMin
from qglow.graph.ops.selection import Where
from qglow.graph.ops.shape import Cast
from qglow.importer.node import ImportNode, ImportRule

LEVELS = 255
"""Steps between the smallest and the largest uint8."""


def import_dynamic_quantize(node: ImportNode) -> None:
    """Import DynamicQuantizeLinear: uint8 over the range of x, with its scale and zero point.

    As onnxruntime computes it: the scale is 1 where x is all zero.
    """
    x = node.value(0)
    node.require(x.type.is_float and x.type.size > 0, f"input 0 is {x.type}; floats are supported")
    integers, scale, zero = quantized_by_range(node, x)
    for output, value in enumerate((integers, None, zero)):
        if value is not None and node.proto.output[output]:
            node.emit(Cast(to=ElementType.UINT8), value, output=output)
    node.results[node.proto.output[1]] = scale


def quantized_by_range(node: ImportNode, x: Value) -> tuple[Value, Value, Value]:
    """Emit integers of x as floats, their scale and their zero point."""
    axes, nothing = tuple(range(len(x.type.shape))), number(node, "nothing", 0.0)
    low = node.emit(ReduceMin(axes=axes, keepdims=False), x, part="least") if axes else x
    high = node.emit(ReduceMax(axes=axes, keepdims=False), x, part="largest") if axes else x
    low = node.emit(Clip(hi=0.0), low, part="low")
    high = node.emit(Clip(lo=0.0), high, part="high")
    extent = node.emit(Sub(), high, low, part="extent")
    divided = node.emit(Div(), extent, number(node, "levels", LEVELS), part="step")
    same = node.emit(Compare(relation="equal"), extent, nothing, part="same")
    result = node.proto.output[1] if node.proto.op_type == "DynamicQuantizeLinear" else ""
    operands = (same, number(node, "one", 1.0), divided)
    if result:
        node.emit(Where(), *operands, output=1)
        scale = node.results[result]
    else:
        scale = node.emit(Where(), *operands, part="scale")
    offset = node.emit(Sub(), nothing, node.emit(Div(), low, scale, part="from"), part="offset")
    bounded = node.emit(Clip(lo=0.0, hi=LEVELS), offset, part="bounded")
    zero = node.emit(Round(), bounded, part="zero")
    rounded = node.emit(Round(), node.emit(Div(), x, scale, part="divided"), part="rounded")
    moved = node.emit(Add(), rounded, zero, part="moved")
    return node.emit(Clip(lo=0.0, hi=LEVELS), moved, part="integers"), scale, zero


def number(node: ImportNode, part: str, value: float) -> Value:
    """A constant of one float32."""
    return node.part_constant(part, np.array(value, np.float32))


RULES: dict[str, ImportRule] = {
    "DynamicQuantizeLinear": ImportRule(import_dynamic_quantize, newest=11),
}
