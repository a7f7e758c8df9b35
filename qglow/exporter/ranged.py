"""Scale and zero point of a tensor from its own range, as nodes of an exported model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from qglow.core.types import ElementType
from qglow.exporter.proto import ONNX_TYPES
from qglow.exporter.sizes import SizeNodes
from qglow.numerics.schema import SMALLEST_SCALE, Schema


@dataclass(frozen=True)
class Ranged:
    """Parameters as `choose_parameters` has them for the range of a constant."""

    schema: Schema
    element: ElementType


FORMS = (Ranged(Schema.asymmetric, ElementType.INT8), Ranged(Schema.symmetric, ElementType.INT8))
"""Parameters that nodes can compute."""


def ranged_parameters(work: SizeNodes, name: str, real: str, form: Ranged) -> tuple[str, str]:
    """Names of the scale and the zero point of constant `name`, of the form given, whose reals are `real`.

    Computed in float64 as everywhere.
    """

    def number(value: float) -> str:
        return work.constant(f"{name}__number", np.array(value, np.float64))

    def wide(op_type: str) -> str:
        return work.emit("Cast", [work.emit(op_type, [real], name, keepdims=0)], name, to=TensorProto.DOUBLE)

    limits = np.iinfo(form.element.dtype)
    zero = number(0.0)
    low = work.emit("Min", [wide("ReduceMin"), zero], f"{name}__low")
    high = work.emit("Max", [wide("ReduceMax"), zero], f"{name}__high")
    if form.schema is Schema.asymmetric:
        levels = float(limits.max) - float(limits.min)
        width = work.emit("Sub", [high, low], f"{name}__width")
        width = work.emit("Max", [width, number(levels * SMALLEST_SCALE)], f"{name}__width")
        scale = work.emit("Div", [width, number(levels)], f"{name}__scale")
        below = work.emit("Div", [work.emit("Mul", [low, number(levels)], name), width], f"{name}__below")
        place = work.emit("Sub", [number(float(limits.min)), below], f"{name}__place")
    else:
        sides = [
            work.emit("Div", [bound, number(float(limit))], f"{name}__side")
            for bound, limit in ((low, limits.min), (high, limits.max))
        ]
        scale = work.emit("Max", [*sides, number(SMALLEST_SCALE)], f"{name}__scale")
        place = zero
    zero_point = work.emit("Round", [place], f"{name}__rounded")
    to = ONNX_TYPES[form.element]
    return (
        work.emit("Cast", [scale], f"{name}__scale", to=TensorProto.FLOAT),
        work.emit("Cast", [zero_point], f"{name}__zero_point", to=to),
    )
