"""Difference of two arrays: whether they differ, and by how much."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qglow.core.types import Array


@dataclass(frozen=True)
class Difference:
    """Elements of one tensor that differ, or `what` where they cannot be compared one by one."""

    name: str
    what: str

    def __str__(self) -> str:
        return f"%{self.name}: {self.what}"


def difference(name: str, left: Array, right: Array, tolerance: float) -> Difference | None:
    """Difference of two tensors of one name; None if they are equal.

    Integers have to be equal. Floats may differ by `tolerance` times the largest finite magnitude on the
    right; NaN equals NaN.
    """
    if left.shape != right.shape or left.dtype != right.dtype:
        return Difference(name, f"{left.dtype}{list(left.shape)} against {right.dtype}{list(right.shape)}")
    with np.errstate(invalid="ignore", over="ignore"):
        same = (left == right) | ((left != left) & (right != right))
        if tolerance and left.dtype.kind == "f":
            finite = np.abs(right[np.isfinite(right)])
            same |= np.abs(left - right) <= tolerance * float(np.max(finite, initial=0.0))
    if np.all(same):
        return None
    where = tuple(int(index[0]) for index in np.nonzero(~same))
    count = int(np.sum(~same))
    values = f"{left[where]} against {right[where]}"
    return Difference(name, f"{count} of {left.size} elements differ, first at {list(where)}: {values}")


def first_difference(
    left: Mapping[str, Array], right: Mapping[str, Array], tolerance: float
) -> Difference | None:
    """The first tensor, in the order of `left`, of those that both have and that differ."""
    found = (difference(name, left[name], right[name], tolerance) for name in left if name in right)
    return next((one for one in found if one is not None), None)
