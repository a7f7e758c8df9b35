"""Operands as the import function of an operator reads them.

A constant of uint8 or uint16 is either numbers, or the integers of a quantized tensor, which are signed in
the graph; only the operator that reads it tells which.
"""

from __future__ import annotations

import numpy as np

from qglow.core.types import QUANTIZED_BITS, Array, ElementType
from qglow.graph.graph import Value, constant
from qglow.importer.node import Context, ImportRule

_SIGNED = {ElementType.UINT8: ElementType.INT8, ElementType.UINT16: ElementType.INT16}
_UNSIGNED = {signed: unsigned for unsigned, signed in _SIGNED.items()}


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
        bits = value.data.view(f"u{element.size}") ^ np.array(middle, f"u{element.size}")
        _, name = context.part_names(value.name, value.name, what)
        context.twins[key] = constant(name, bits.view(element.dtype).reshape(value.data.shape))
        if element in QUANTIZED_BITS:
            context.unsigned.add(name)
    return context.twins[key]
