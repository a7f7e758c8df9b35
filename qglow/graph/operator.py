"""What an operator is: attributes, shape and type, meaning, and behaviour under quantization.

One frozen dataclass an operator, its fields the attributes. The same class stands for the
float and the int8 form; the types of the values say which.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.types import Array, TensorType
from qglow.numerics.half import widen
from qglow.numerics.quantize import dequantize_by, quantize_by


class OperatorTypeError(Exception):
    """Input types or attributes do not fit an operator; callers add which node."""


@dataclass(frozen=True, slots=True)
class Accumulate:
    """int8 x int8 into int32, rescaled once. Operand names; bias may be absent."""

    x: str = "x"
    w: str = "w"
    bias: str = "bias"


@dataclass(frozen=True, slots=True)
class Products:
    """int8 x int8 of two activations, one scale each, into int32, rescaled once or given in float."""


@dataclass(frozen=True, slots=True)
class SameAs:
    """The output takes the parameters of one input: data movement and selections."""

    operand: int = 0


@dataclass(frozen=True, slots=True)
class Unify:
    """Inputs and output share parameters where that costs each input less than 1 dB.

    `rescales`: where they do not, the int8 form itself takes operands of other parameters.
    """

    rescales: bool = False


@dataclass(frozen=True, slots=True)
class Rescaled:
    """Own output parameters, elementwise int8 arithmetic."""


@dataclass(frozen=True, slots=True)
class Table:
    """A 256-entry table from the float64 reference."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Parameters of an output range that is known in advance."""

    scale: float
    zero_point: int


@dataclass(frozen=True, slots=True)
class ReadsIntegers:
    """Gives no reals and takes int8 operands as they are: nothing is converted for it."""


@dataclass(frozen=True, slots=True)
class KeepFloat:
    """Stays float; the reason reaches the report."""

    reason: str


Policy = Accumulate | Products | SameAs | Unify | Rescaled | Table | Fixed | ReadsIntegers | KeepFloat


@dataclass(frozen=True)
class Operator(ABC):
    """Base of all operators.

    `operands` names the inputs in order; a name that ends in `?` is optional, one that ends
    in `*` stands for any number and is the last. `policy` says how quantization treats it;
    `fixed` gives the parameters of a result whose range is known in advance; `float_operands`
    are those that its int8 form takes as they are: factors in float, conditions.

    Float attributes are rounded to float32 when an operator is made, so that text restores them.
    """

    name: ClassVar[str]
    operands: ClassVar[tuple[str, ...]]
    policy: ClassVar[Policy]
    commutative: ClassVar[bool] = False
    fixed: ClassVar[Fixed | None] = None
    float_operands: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.type == "float":
                object.__setattr__(self, field.name, float(np.float32(getattr(self, field.name))))

    @abstractmethod
    def infer(self, inputs: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        """Output types of the float form. Raises OperatorTypeError.

        Quantized inputs are treated as their shapes; the outputs' element type is then the
        float one, and whoever quantizes replaces it.
        """

    @abstractmethod
    def evaluate(self, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        """The float (or plain integer) meaning in numpy."""

    def evaluate_quantized(
        self,
        inputs: Sequence[Array | None],
        input_types: Sequence[TensorType | None],
        output_types: Sequence[TensorType],
    ) -> tuple[Array, ...]:
        """The meaning where some type is quantized: dequantize, evaluate, quantize.

        Operators with a rule of their own override it.
        """
        reals = [_to_float(a, t) for a, t in zip(inputs, input_types, strict=True)]
        results = self.evaluate(reals)
        return tuple(_from_float(a, t) for a, t in zip(results, output_types, strict=True))

    def run(
        self,
        inputs: Sequence[Array | None],
        input_types: Sequence[TensorType | None],
        output_types: Sequence[TensorType],
    ) -> tuple[Array, ...]:
        """Evaluate with whichever meaning the types ask for; reals of 16 bits as float32."""
        inputs = [
            a if a is None or t is None or not t.is_half else widen(a)
            for a, t in zip(inputs, input_types, strict=True)
        ]
        types = [*input_types, *output_types]
        if any(t is not None and t.is_quantized for t in types):
            return self.evaluate_quantized(inputs, input_types, output_types)
        return self.evaluate(inputs)

    def reference64(self, x: Array) -> Array:
        """float64 reference of a one-input elementwise operator, for tables (policy Table)."""
        raise NotImplementedError(f"{self.name} has no table")


def _to_float(array: Array | None, kind: TensorType | None) -> Array | None:
    if array is None or kind is None or kind.quantization is None:
        return array
    return dequantize_by(array, kind.quantization)


def _from_float(array: Array, kind: TensorType) -> Array:
    if kind.quantization is None:
        return np.asarray(array, kind.element.dtype)
    return quantize_by(array, kind.quantization)


OPERATORS: dict[str, type[Operator]] = {}


def register(cls: type[Operator]) -> type[Operator]:
    """Class decorator: make an operator known by its name to text and importers."""
    if cls.name in OPERATORS:
        raise ValueError(f"operator {cls.name} is declared twice")
    OPERATORS[cls.name] = cls
    return cls


def require(condition: bool, message: str) -> None:
    """Raise OperatorTypeError(message) unless `condition`."""
    if not condition:
        raise OperatorTypeError(message)
