"""Choices of quantization that recipes and their rules share."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from qglow.core.options import not_one_of

SCHEMAS = ("asymmetric", "symmetric", "symmetric_with_uint8", "symmetric_with_power2_scale")
FIXED = "fixed"
REQUANTIZATIONS = ("float", FIXED)
"""Arithmetic that brings sums to int8: float32, or the fixed point of gemmlowp and CMSIS-NN."""
CALIBRATIONS = ("auto", "minmax", "kl", "percentile", "mse")
WEIGHT_BITS = {"int8": 8, "int4": 4, "int2": 2}
"""Widths of weights that are quantized alone."""
BLOCKS = (16, 32, 64, 128, 256)
"""Numbers of weights that may share a scale: those that onnxruntime's MatMulNBits has too."""
MOST_FACTOR = 4.0
"""Largest factor of a range that reaches farther than what was seen."""
UNSTATED = "default"
"""Stands for the default where nobody has stated it."""
CALIBRATION_FORMS = tuple("percentile:P" if name == "percentile" else name for name in CALIBRATIONS)

SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
"""Units of longer times, as factors of a second."""


def parse_time(text: str, units: Mapping[str, float]) -> float:
    """A length of time such as "10m", in the unit whose factor is 1. Raises ValueError for other text.

    >>> parse_time("1.5m", SECONDS)
    90.0
    """
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-z]+)", text)
    if match is None or match[2] not in units:
        raise ValueError(f"{text}: write {' or '.join(f'5{unit}' for unit in units)}")
    time = float(match[1]) * units[match[2]]
    if math.isinf(time):
        raise ValueError(f"{text[:20]} ...: longer than any time")
    return time


def one_of(value: str, valid: tuple[str, ...], what: str) -> str:
    """`value` where it is valid; else ValueError with the nearest valid name."""
    if value not in valid:
        raise ValueError(f"{what} {not_one_of(value, valid)}")
    return value


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """Format of weights that are quantized alone, in blocks along their products.

    bits: 8, 4 or 2. block: weights that share a scale. symmetric: whether they have no zero point.
    float16: whether scales are of that type, not float32.
    """

    bits: int = 4
    block: int = 32
    symmetric: bool = False
    float16: bool = False

    @staticmethod
    def parse(text: str) -> BlockFormat:
        """Read "int4", "int4:64", "int4:64:symmetric" or "int4:64:float16". Raises ValueError for other text.

        >>> BlockFormat.parse("int8:128:symmetric")
        BlockFormat(bits=8, block=128, symmetric=True, float16=False)
        >>> str(BlockFormat.parse("int4:float16"))
        'int4:32:float16'
        """
        name, *rest = text.split(":")
        one_of(name, tuple(WEIGHT_BITS), "weights")
        size = rest.pop(0) if rest and rest[0].isdigit() else "32"
        if [word for word in ("symmetric", "float16") if word in rest] != rest:
            raise ValueError(
                f"weights {text!r}: write {name}, {name}:BLOCK or {name}:BLOCK:symmetric, and :float16 "
                "behind it for scales of 16 bits"
            )
        block = int(size) if len(size) < 4 else 0
        if block not in BLOCKS:
            raise ValueError(f"weights {text!r}: blocks of {', '.join(map(str, BLOCKS))} are supported")
        return BlockFormat(WEIGHT_BITS[name], block, "symmetric" in rest, "float16" in rest)

    def __str__(self) -> str:
        words = (":symmetric" if self.symmetric else "", ":float16" if self.float16 else "")
        return f"int{self.bits}:{self.block}{''.join(words)}"


@dataclass(frozen=True, slots=True)
class Calibration:
    """Method that chooses a range from a histogram.

    method: one of CALIBRATIONS. percent: the share of elements that the range covers, above 50 and at most
    100, for "percentile" alone. factor: how much farther than what was seen the range reaches, from 1 to
    `MOST_FACTOR`, for "minmax" alone. stated: whether it was read, as `parse` does, and is not the default
    that nobody chose. The default has the best SQNR of outputs over the calibration data of real networks,
    taken together.
    """

    method: str = "kl"
    percent: float | None = None
    stated: bool = field(default=False, repr=False, compare=False)
    factor: float = field(default=1.0, repr=False)

    def uses_divergence(self, given: bool) -> bool:
        """Whether a range is that of least divergence; given: for an input of the model."""
        return self.method == "kl" or (self.method == "auto" and given)

    @property
    def is_default(self) -> bool:
        """Whether it is the default that nobody has stated, so that a better one may take its place."""
        return not self.stated and self == Calibration()

    @staticmethod
    def parse(text: str) -> Calibration:
        """Read "auto", "minmax", "minmax:1.2", "kl", "mse" or "percentile:99.99".

        "default" is what nobody has stated.

        Raises ValueError for other text.

        >>> Calibration.parse("percentile:99.99")
        Calibration(method='percentile', percent=99.99)
        >>> str(Calibration.parse("mse"))
        'mse'
        """
        if text == UNSTATED:
            return Calibration()
        method, colon, argument = text.partition(":")
        if method not in CALIBRATIONS:
            raise ValueError(not_one_of(method, (UNSTATED, *CALIBRATIONS)))
        if not colon and method != "percentile":
            return Calibration(method, stated=True)
        if method not in ("minmax", "percentile"):
            raise ValueError(f"{method!r} takes no argument, found {text!r}")
        try:
            number = float(argument)
        except ValueError:
            number = math.nan
        if method == "minmax":
            if not 1.0 <= number <= MOST_FACTOR:
                raise ValueError(f"{text!r}: write minmax:F with F from 1 to {MOST_FACTOR:g}")
            return Calibration(method, stated=True, factor=number)
        if not 50.0 < number <= 100.0:
            raise ValueError(f"{text!r}: write percentile:P with P above 50 and at most 100")
        return Calibration(method, number, stated=True)

    def to_text(self) -> str:
        """Text that `parse` reads back: "default" for the default that nobody has stated."""
        return UNSTATED if self.is_default else str(self)

    def __str__(self) -> str:
        if self.factor != 1.0:
            return f"{self.method}:{self.factor!r}"
        return self.method if self.percent is None else f"{self.method}:{self.percent!r}"
