"""ONNX nodes of arithmetic, functions of one variable, choices and comparisons."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from qglow.core.types import HALF_TYPES, ElementType
from qglow.exporter.export import Export
from qglow.exporter.proto import ONNX_TYPES
from qglow.graph.operator import Operator
from qglow.graph.ops import elementwise, functions, logic, selection
from qglow.interchange.functions import FUNCTIONS

_COMPARISONS = {
    "equal": "Equal",
    "greater": "Greater",
    "greater-or-equal": "GreaterOrEqual",
    "less": "Less",
    "less-or-equal": "LessOrEqual",
}


def _plain(operator: type[Operator]) -> Callable[[Any, Export], None]:
    """ONNX has the operator under the same name, without attributes."""
    return lambda op, out: out.emit(operator.name)


def _function(op: Operator, out: Export) -> None:
    """ONNX has the function under the same name, its fields as attributes."""
    out.emit(op.name, **{field.name: getattr(op, field.name) for field in dataclasses.fields(op)})


def _compare(op: logic.Compare, out: Export) -> None:
    """ONNX has no not-equal: it is Xor of booleans, else the negation of Equal."""
    if op.relation in _COMPARISONS:
        out.emit(_COMPARISONS[op.relation])
        return
    kind = out.node.input_types()[0]
    if kind is not None and kind.element.dtype == np.bool_:
        out.emit("Xor")
        return
    equal = out.builder.fresh(f"{out.output}__equal")
    out.builder.node("Equal", f"{out.node.name}__equal", out.inputs, equal)
    out.builder.node("Not", out.node.name, [equal], out.output)


def _whole(op: logic.Whole, out: Export) -> None:
    """Export an operation of integers."""
    if op.operation in ("left", "right"):
        out.emit("BitShift", direction=op.operation.upper())
    elif op.operation in ("remainder", "modulo"):
        out.emit("Mod", fmod=int(op.operation == "remainder"))
    else:
        out.emit(f"Bitwise{op.operation.capitalize()}")


def _swish(op: functions.Swish, out: Export) -> None:
    """Export Swish as a Sigmoid and a Mul, which runtimes had long before Swish."""
    x = out.inputs[0]
    scaled = x
    if op.alpha != 1.0:
        scaled = out.builder.fresh(f"{out.output}__scaled")
        out.builder.node("Mul", f"{out.node.name}__scaled", [x, out.number("alpha", op.alpha)], scaled)
    sigmoid = out.builder.fresh(f"{out.output}__sigmoid")
    out.builder.node("Sigmoid", f"{out.node.name}__sigmoid", [scaled], sigmoid)
    out.builder.node("Mul", out.node.name, [sigmoid, x], out.output)


def _round_to(op: functions.RoundTo, out: Export) -> None:
    """Export RoundTo as a Cast to the type of 16 bits and another one back."""
    half = out.builder.fresh(f"{out.output}__{op.element}")
    out.builder.node("Cast", out.node.name, out.inputs, half, to=ONNX_TYPES[HALF_TYPES[op.element]])
    to = ONNX_TYPES[ElementType.FLOAT]
    out.builder.node("Cast", f"{out.node.name}__float", [half], out.output, to=to)


_PLAIN = (
    *(elementwise.Add, elementwise.Sub, elementwise.Mul, elementwise.Div, elementwise.Pow, elementwise.PRelu),
    *(selection.Max, selection.Min, selection.Where, logic.And, logic.Or, logic.Not),
)

EXPORTS: dict[type[Operator], Callable[[Any, Export], None]] = {
    **{operator: _plain(operator) for operator in _PLAIN},
    **{function.operator: _function for function in FUNCTIONS},
    functions.PowerOf: lambda op, out: out.emit("Pow", out.number("exponent", op.exponent)),
    functions.RoundTo: _round_to,
    functions.Swish: _swish,
    logic.Compare: _compare,
    logic.Whole: _whole,
}
