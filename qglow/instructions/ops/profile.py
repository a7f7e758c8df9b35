"""Operations that collect profiles while a program runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.types import ElementType
from qglow.instructions.operation import (
    Access,
    Arrays,
    Operand,
    Operation,
    Types,
    inout,
    read,
    register,
    require,
)
from qglow.instructions.ops.rules import require_float, require_shape
from qglow.numerics.histogram import BIN_COUNT, finite_range, histogram


@register
@dataclass(frozen=True)
class RecordProfile(Operation):
    """Adds the elements of src to statistics that are kept from call to call.

    counts: elements of every histogram bin. range: smallest and largest finite element so
    far. With a channel axis, `channel_range` is the same for every channel (row 0 smallest,
    row 1 largest) and `channel_sums` this call's float64 sum of every sample (axis 0 of src)
    and channel. The caller sets empty ranges to (inf, -inf) before the first call.
    """

    opcode: ClassVar[str] = "profile"
    signature: ClassVar[tuple[Operand, ...]] = (
        read(strided=True),
        inout("counts"),
        inout("range"),
        Operand("channel_range", Access.INOUT, optional=True),
        Operand("channel_sums", Access.OUT, optional=True),
    )
    updates_state: ClassVar[bool] = True

    channel_axis: int | None = None

    def verify(self, types: Types) -> None:
        """Statistics have the types above; those of channels exist with a channel axis only."""
        require_float(types, "src", "range", "channel_range")
        require(types["counts"].element is ElementType.INT64, f"counts is {types['counts']}, not i64")
        require_shape(types, "counts", (BIN_COUNT,), "one a bin")
        require_shape(types, "range", (2,), "smallest and largest")
        present = ("channel_range" in types, "channel_sums" in types)
        axis, shape = self.channel_axis, types["src"].shape
        require(present == (axis is not None,) * 2, "channel statistics go with a channel axis")
        if axis is None:
            return
        require(1 <= axis < len(shape), f"channel axis {axis} is not one of {len(shape)} after the batch")
        require_shape(types, "channel_range", (2, shape[axis]), "smallest and largest of every channel")
        sums = types["channel_sums"]
        require(sums.element is ElementType.DOUBLE, f"channel_sums is {sums}, not double")
        require_shape(types, "channel_sums", (shape[0], shape[axis]), "samples and channels")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.histogram, and numpy sums."""
        src = arrays["src"]
        arrays["counts"][...] += histogram(src)
        low, high = finite_range(src)
        arrays["range"][0] = min(float(arrays["range"][0]), low)
        arrays["range"][1] = max(float(arrays["range"][1]), high)
        if self.channel_axis is None:
            return
        rows = np.moveaxis(src, self.channel_axis, 1).reshape(src.shape[0], src.shape[self.channel_axis], -1)
        finite = np.isfinite(rows)
        lowest = np.where(finite, rows, np.float32(np.inf)).min(axis=(0, 2), initial=np.inf)
        highest = np.where(finite, rows, np.float32(-np.inf)).max(axis=(0, 2), initial=-np.inf)
        ranges = arrays["channel_range"]
        ranges[0] = np.minimum(ranges[0], lowest)
        ranges[1] = np.maximum(ranges[1], highest)
        arrays["channel_sums"][...] = np.where(finite, rows, 0.0).sum(axis=2, dtype=np.float64)
