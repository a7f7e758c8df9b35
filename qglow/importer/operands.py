"""Operands as the import function of an operator reads them.

A constant of uint8 or uint16 is either numbers, or the integers of a quantized tensor, which are signed in
the graph; only the operator that reads it tells which. Reals of other widths are computed with as float32.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qglow.core.types import QUANTIZED_BITS, Array, ElementType
from qglow.graph.graph import Value, constant
from qglow.graph.ops.shape import Cast
from qglow.importer.node import Context, ImportRule

_SIGNED = {ElementType.UINT8: ElementType.INT8, ElementType.UINT16: ElementType.INT16}
_UNSIGNED = {signed: unsigned for unsigned, signed in _SIGNED.items()}


def operands(
    values: Sequence[Value | None], rule: ImportRule, context: Context, doubles: bool = True
) -> list[Value | None]:
    """Operands of one node; `doubles` admits constants of float64 where all are constants."""
    read = [as_read(value, rule, context) for value in values]
    if rule.reads_halves:
        return read
    doubles = doubles and all(value is None or value.is_constant for value in read)
    return [value if value is None else as_real(value, context, doubles) for value in read]


_WIDENED = "float"
"""Part of the name of a value that is another one in float32."""


def tensor_of(name: str) -> str:
    """Name of the tensor of the file that a value of this name is the float32 of, if it is one."""
    return name.removesuffix(f"__{_WIDENED}")


def as_real(value: Value, context: Context, doubles: bool = False) -> Value:
    """Reals of another width as float32; float64 constants stay with `doubles`, and so does all else."""
    wide = value.type.element is ElementType.DOUBLE
    if not (value.type.is_half or wide) or (wide and doubles and value.is_constant):
        return value
    key = (value.name, _WIDENED)
    if key not in context.twins:
        node, name = context.part_names(value.name, value.name, _WIDENED)
        context.twins[key] = context.emit(node, Cast(to=ElementType.FLOAT), [value], name)
    return context.twins[key]


def as_read(value: Value | None, rule: ImportRule, context: Context) -> Value | None:
    """A constant of unsigned integers in the form that the rule's function takes; all others as they are."""
    if value is None or value.data is None or value.type.is_quantized:
        return value
    element = value.type.element
    if rule.reads_unsigned and element in _SIGNED:
        return _other(value, _SIGNED[element], "integers", context)
    if not rule.reads_unsigned and element in QUANTIZED_BITS and value.name in context.unsigned:
        return _other(value, _UNSIGNED[element], "numbers", context)
    return value


def numbers(value: Value, context: Context) -> Array | None:
    """The data of a constant as the model has it, unsigned integers too."""
    known = as_read(value, ImportRule(lambda node: None, 1), context)
    return None if known is None else known.data


def _other(value: Value, element: ElementType, what: str, context: Context) -> Value:
    """The same constant as integers of the other signedness, under a name of its own."""
    key = (value.name, what)
    if key not in context.twins:
        assert value.data is not None
        middle = 1 << (8 * element.size - 1)  # the highest bit tells the two forms apart
        data = value.data

        def make() -> Array:
            bits = data.view(f"u{element.size}") ^ np.array(middle, f"u{element.size}")
            return np.asarray(bits.view(element.dtype).reshape(data.shape))

        _, name = context.part_names(value.name, value.name, what)
        context.twins[key] = constant(name, context.derived(("other form", element), [data], make))
        if element in QUANTIZED_BITS:
            context.unsigned.add(name)
    return context.twins[key]
