"""Element types, quantization parameters and tensor types, shared by both IRs.

`real = scale * (q - zero_point)`, scale a positive float32, zero_point an integer of the
element type, as in the ONNX operators QuantizeLinear and DequantizeLinear.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Shape = tuple[int, ...]
Dimension = int | str | None
"""Dimension of an input as a model's file declares it: a number, a symbol, or nothing."""
Given = Array | int | float | bool | Sequence[object]
"""A value that a caller states for a tensor: an array of its type, or Python numbers that convert to it."""
UNSIGNED = "unsigned"
"""Word behind a type of int8 that is uint8 for callers, in IR text."""


class ElementType(enum.Enum):
    """Type of one element of a tensor. The value is its name in IR text.

    Only constants, inputs and outputs are FLOAT16, BFLOAT16 and DOUBLE: whoever computes with them reads
    them as float32.
    """

    FLOAT = "float"
    DOUBLE = "double"
    FLOAT16 = "f16"
    BFLOAT16 = "bf16"
    INT8 = "i8"
    INT16 = "i16"
    INT32 = "i32"
    INT64 = "i64"
    UINT8 = "u8"
    UINT16 = "u16"
    UINT32 = "u32"
    UINT64 = "u64"
    BOOL = "bool"

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type that holds it."""
        return _DTYPES[self]

    @cached_property
    def size(self) -> int:
        """Bytes an element."""
        return int(_DTYPES[self].itemsize)

    @property
    def is_integer(self) -> bool:
        """Whether elements are whole numbers; booleans are not."""
        return _DTYPES[self].kind in "iu"

    @property
    def is_unsigned(self) -> bool:
        """Whether memory holds elements as numbers without a sign: unsigned integers and booleans."""
        return _DTYPES[self].kind in "ub"

    @staticmethod
    def of(dtype: Any) -> ElementType:
        """The element type of a numpy dtype. Raises KeyError for one that has none."""
        return _BY_DTYPE[np.dtype(dtype)]


try:
    import ml_dtypes

    _BFLOAT16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
except ModuleNotFoundError:  # int8 programs run with numpy and llvmlite alone
    _BFLOAT16 = np.dtype("V2")

_DTYPES: dict[ElementType, np.dtype[Any]] = {
    ElementType.FLOAT: np.dtype(np.float32),
    ElementType.DOUBLE: np.dtype(np.float64),
    ElementType.FLOAT16: np.dtype(np.float16),
    ElementType.BFLOAT16: _BFLOAT16,
    ElementType.INT8: np.dtype(np.int8),
    ElementType.INT16: np.dtype(np.int16),
    ElementType.INT32: np.dtype(np.int32),
    ElementType.INT64: np.dtype(np.int64),
    ElementType.UINT8: np.dtype(np.uint8),
    ElementType.UINT16: np.dtype(np.uint16),
    ElementType.UINT32: np.dtype(np.uint32),
    ElementType.UINT64: np.dtype(np.uint64),
    ElementType.BOOL: np.dtype(np.bool_),
}
QUANTIZED_BITS = {ElementType.INT8: 8, ElementType.INT16: 16}
"""Types that may stand for reals, and their widths."""
HALF_TYPES = {"float16": ElementType.FLOAT16, "bfloat16": ElementType.BFLOAT16}
"""Reals of 16 bits by the names that recipes and models have for them."""
_BY_DTYPE = {dtype: element for element, dtype in _DTYPES.items()}


def format_float(value: float) -> str:
    """Shortest decimal that restores the same float32; always recognisable as a float."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return str(np.float32(value))


_FARTHEST = 1 << 16
"""Magnitude of the largest zero point; parameters that are no integers of the type are far from sensible."""

FIXED_POINT = "fixed"
"""Text of a `Quantization` to whose scale sums are brought in fixed point."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """Scale and zero point of a tensor, or of every slice along `axis`, and the type of its integers.

    `scales` and `zero_points` have one element for a tensor, else one a slice. Scales are
    Python floats that hold float32 values exactly. `element` is int8 or int16. `fixed_point`: sums
    are brought to this scale in fixed point (rule 10 of the numeric contract), not in float32 (rules 5, 6).
    """

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None
    element: ElementType = ElementType.INT8
    fixed_point: bool = False

    def __post_init__(self) -> None:
        if len(self.scales) != len(self.zero_points) or not self.scales:
            raise ValueError("one zero point a scale, and at least one scale")
        if self.axis is None and len(self.scales) != 1:
            raise ValueError("several scales need an axis")
        if self.element not in QUANTIZED_BITS:
            raise ValueError(f"{self.element.value} has no quantization parameters")
        if not all(-_FARTHEST <= zero <= _FARTHEST for zero in self.zero_points):
            raise ValueError(f"a zero point is beyond {_FARTHEST}")
        for scale in self.scales:
            if not (scale > 0.0 and math.isfinite(scale)) or float(np.float32(scale)) != scale:
                raise ValueError(f"scale {scale} is not a positive finite float32")

    @staticmethod
    def per_tensor(scale: float, zero_point: int, element: ElementType = ElementType.INT8) -> Quantization:
        """One scale and zero point for the whole tensor; `scale` is rounded to float32."""
        return Quantization((float(np.float32(scale)),), (int(zero_point),), None, element)

    @staticmethod
    def per_channel(
        scales: Array,
        axis: int,
        zero_points: Array | None = None,
        element: ElementType = ElementType.INT8,
    ) -> Quantization:
        """One scale a slice along `axis`; zero points are 0 unless given."""
        values = tuple(float(s) for s in np.asarray(scales, np.float32))
        zeros = (0,) * len(values) if zero_points is None else tuple(int(z) for z in zero_points)
        return Quantization(values, zeros, axis, element)

    @property
    def smallest(self) -> int:
        """The smallest integer of the type."""
        return -(1 << (QUANTIZED_BITS[self.element] - 1))

    @property
    def largest(self) -> int:
        """The largest integer of the type."""
        return (1 << (QUANTIZED_BITS[self.element] - 1)) - 1

    @property
    def is_wide(self) -> bool:
        """Whether integers are int16."""
        return self.element is ElementType.INT16

    @property
    def real_range(self) -> tuple[float, float]:
        """Smallest and largest real value. Raises ValueError for per-channel parameters."""
        zero, scale = self.zero_point, self.scale
        return (self.smallest - zero) * scale, (self.largest - zero) * scale

    @property
    def scale(self) -> float:
        """The scale of a per-tensor quantization. Raises ValueError for a per-channel one."""
        if self.axis is not None:
            raise ValueError("per-channel parameters have no single scale")
        return self.scales[0]

    @property
    def zero_point(self) -> int:
        """The zero point of a per-tensor quantization. Raises ValueError for per-channel."""
        if self.axis is not None:
            raise ValueError("per-channel parameters have no single zero point")
        return self.zero_points[0]

    def __str__(self) -> str:
        if self.axis is None:
            return f"S:{format_float(self.scales[0])} O:{self.zero_points[0]}{self._rounding}"
        return self.naming("{" + ",".join(format_float(s) for s in self.scales) + "}")

    def naming(self, scales: str) -> str:
        """The text of parameters by slice, with this text in place of all their scales."""
        same = len(set(self.zero_points)) == 1
        zeros = str(self.zero_points[0]) if same else "{" + ",".join(map(str, self.zero_points)) + "}"
        return f"S:{scales} O:{zeros} A:{self.axis}{self._rounding}"

    @property
    def _rounding(self) -> str:
        return f" R:{FIXED_POINT}" if self.fixed_point else ""


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type, shape and, for integers that stand for reals, quantization parameters.

    unsigned: for callers of the model these int8 are uint8, 128 more. It says nothing of how they are held
    and computed with, so that types are equal without it.
    """

    element: ElementType
    shape: Shape
    quantization: Quantization | None = None
    unsigned: bool = field(default=False, compare=False)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def byte_size(self) -> int:
        """Bytes of a dense tensor."""
        return self.size * self.element.size

    @property
    def is_quantized(self) -> bool:
        """Whether elements are integers with a scale and a zero point."""
        return self.quantization is not None

    @property
    def is_float(self) -> bool:
        """Whether elements are float32."""
        return self.element is ElementType.FLOAT

    @property
    def is_plain_integer(self) -> bool:
        """Whether elements are whole numbers that stand for themselves."""
        return self.element.is_integer and self.quantization is None

    @property
    def is_half(self) -> bool:
        """Whether elements are reals of 16 bits."""
        return self.element in (ElementType.FLOAT16, ElementType.BFLOAT16)

    def with_shape(self, shape: Shape) -> TensorType:
        """The same elements in another shape."""
        return TensorType(self.element, tuple(int(d) for d in shape), self.quantization)

    def quantized(self, quantization: Quantization) -> TensorType:
        """The same shape as integers with these parameters."""
        return TensorType(quantization.element, self.shape, quantization)

    def real_range(self) -> tuple[float, float] | None:
        """Smallest and largest real value of a per-tensor quantized type; None for others."""
        if self.quantization is None or self.quantization.axis is not None:
            return None
        return self.quantization.real_range

    def __str__(self) -> str:
        return self.naming("" if self.quantization is None else str(self.quantization))

    def naming(self, parameters: str) -> str:
        """The text of the type, with this text in place of its parameters."""
        dims = " x ".join(str(d) for d in self.shape)
        end = f" {UNSIGNED}" if self.unsigned else ""
        return f"{self.element.value}{f'[{parameters}]' if parameters else ''}<{dims}>{end}"


def float_type(*shape: int) -> TensorType:
    """float32 tensor type of this shape."""
    return TensorType(ElementType.FLOAT, tuple(shape))
