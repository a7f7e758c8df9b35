"""Choices of quantization that recipes and their rules share."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

SCHEMAS = ("asymmetric", "symmetric", "symmetric_with_uint8", "symmetric_with_power2_scale")
CALIBRATIONS = ("auto", "minmax", "kl", "percentile", "mse")


SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
"""Units of longer times, as factors of a second."""


def parse_time(text: str, units: Mapping[str, float]) -> float:
    """A length of time such as "10m", in the unit whose factor is 1. Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-z]+)", text)
    if match is None or match[2] not in units:
        raise ValueError(f"{text}: write {' or '.join(f'5{unit}' for unit in units)}")
    return float(match[1]) * units[match[2]]


def one_of(value: str, valid: tuple[str, ...], what: str) -> str:
    """`value` where it is valid; else ValueError with the nearest valid name."""
    if value in valid:
        return value
    nearest = get_close_matches(value, valid, 1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    raise ValueError(f"{what} {value!r} is not one of {', '.join(valid)}{hint}")


@dataclass(frozen=True, slots=True)
class Calibration:
    """How a range is chosen from a histogram. `percent` belongs to "percentile" alone.

    The default has the best SQNR of outputs over the calibration data of real networks, taken together.
    """

    method: str = "kl"
    percent: float | None = None

    @staticmethod
    def parse(text: str) -> Calibration:
        """ "auto", "minmax", "kl", "mse" or "percentile:99.99". Raises ValueError for anything else."""
        method, colon, argument = text.partition(":")
        one_of(method, CALIBRATIONS, "calibration")
        if method != "percentile":
            if colon:
                raise ValueError(f"calibration {method!r} takes no argument, found {text!r}")
            return Calibration(method)
        try:
            percent = float(argument)
        except ValueError:
            percent = math.nan
        if not 50.0 < percent <= 100.0:
            raise ValueError(f"calibration {text!r}: write percentile:P with P above 50 and at most 100")
        return Calibration(method, percent)

    def __str__(self) -> str:
        return self.method if self.percent is None else f"{self.method}:{self.percent!r}"
