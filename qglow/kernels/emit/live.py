"""Live places in kernels: loops that leave out elements which do not matter.

A kernel that `limits_live` may run fewer pieces of its loops over elements of the result, and shorter sums of
products. What it computes beyond the live elements, and where it stops behind them, changes no live bit.
"""

from __future__ import annotations

from dataclasses import dataclass

from qglow.kernels.emit.builder import Builder, Index, Value


@dataclass(frozen=True)
class LiveRule:
    """Live elements along one axis, see `instructions.program.Live`. number: live places, an i64."""

    number: Value
    extent: int
    inner: int

    @property
    def period(self) -> int:
        """Elements after which places count from 0 again."""
        return self.extent * self.inner


@dataclass(frozen=True)
class LiveElements:
    """Live elements of a kernel's result: those that are live by all rules, that of the longest period first.

    summed: number of terms of a sum of products that matter, an i64; None where these are all.
    """

    rules: tuple[LiveRule, ...] = ()
    summed: Value | None = None

    def has_row(self, e: Builder, row: Index, length: int) -> Value | None:
        """Whether a row of `length` elements has live ones; None where rows are not parts of periods."""
        period = self.rules[0].period
        if period % length:
            return None
        place = e.b.urem(e.index(row), e.index(period // length))
        rows = self.pieces(e, 0, length, period // length, period)
        return e.b.icmp_unsigned("<", place, e.index(rows))

    def pieces(self, e: Builder, first: int, width: int, count: int, period: int) -> Index:
        """Number of pieces to run of `count` that have `width` elements each, from element `first` on.

        period: elements over which the loops run that the pieces belong to; all pieces run where no rule has
        this period.
        """
        rule = next((rule for rule in self.rules if rule.period == period), None)
        if rule is None or not width:
            return count
        with e.at_entry():
            # Whatever a caller's number says, no place is beyond the axis.
            places = e.minimum(e.maximum(rule.number, 0), rule.extent)
            behind = e.plus(e.scaled(places, rule.inner), width - 1 - first)
            return e.minimum(e.b.sdiv(e.maximum(behind, 0), e.index(width)), count)
