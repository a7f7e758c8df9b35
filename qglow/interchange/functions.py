"""Functions of one variable that ONNX has under the same name, their attributes named like the fields."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Relu
from qglow.graph.ops.functions import (
    Abs,
    Atan,
    Ceil,
    Cos,
    Elu,
    Erf,
    Exp,
    Floor,
    Gelu,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    Log,
    Mish,
    Neg,
    Reciprocal,
    Round,
    Sigmoid,
    Sign,
    Sin,
    Softplus,
    Sqrt,
    Swish,
    Tanh,
)


@dataclass(frozen=True, slots=True)
class OnnxFunction:
    """An operator of one input and the newest definition (since_version) in ONNX that it agrees with.

    ONNX's defaults of attributes are the defaults of the fields.
    """

    operator: type[Operator]
    newest: int

    def attributes(self) -> dict[str, Any]:
        """The default of every attribute by name."""
        return {field.name: field.default for field in dataclasses.fields(self.operator)}


FUNCTIONS = (
    OnnxFunction(Abs, newest=13),
    OnnxFunction(Atan, newest=22),
    OnnxFunction(Ceil, newest=13),
    OnnxFunction(Cos, newest=22),
    OnnxFunction(Elu, newest=22),
    OnnxFunction(Erf, newest=13),
    OnnxFunction(Exp, newest=13),
    OnnxFunction(Floor, newest=13),
    OnnxFunction(Gelu, newest=20),
    OnnxFunction(HardSigmoid, newest=22),
    OnnxFunction(HardSwish, newest=22),
    OnnxFunction(LeakyRelu, newest=16),
    OnnxFunction(Log, newest=13),
    OnnxFunction(Mish, newest=22),
    OnnxFunction(Neg, newest=13),
    OnnxFunction(Reciprocal, newest=13),
    OnnxFunction(Relu, newest=14),
    OnnxFunction(Round, newest=22),
    OnnxFunction(Sigmoid, newest=13),
    OnnxFunction(Sign, newest=13),
    OnnxFunction(Sin, newest=22),
    OnnxFunction(Softplus, newest=22),
    OnnxFunction(Sqrt, newest=13),
    OnnxFunction(Swish, newest=24),
    OnnxFunction(Tanh, newest=13),
)
