"""Cover of the pixels of a product by tiles.

A tile of pixels is a stretch of the innermost axis, at most 16 long. The two of a pair are
neighbours on that axis, or lie on two rows where a row fits into one tile. Tiles that do not
divide an axis overlap, so that all have one size; what is computed twice has the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from qglow.kernels.tiled.geometry import Axis, Geometry, collapse
from qglow.targets.x86.amx import TILE_ROWS

PAIR = 2


@dataclass(frozen=True, slots=True)
class Walk:
    """Cover of an image by units of one or two tiles of pixels.

    A tile is `rows` pixels along `along`. The `tiles` of a unit are `apart` elements of `over`
    from one another; `units` start `step` elements of `over` apart, the last at `last` at most.
    """

    outer: tuple[Axis, ...]
    along: Axis
    over: Axis
    rows: int
    tiles: int
    apart: int
    units: int
    step: int
    last: int

    @property
    def overlaps(self) -> bool:
        """Whether the last unit is moved back, so that it overlaps the one before."""
        return (self.units - 1) * self.step != self.last

    @property
    def pixels(self) -> int:
        """Pixels inside of the loops over the outer axes."""
        return self.over.count * (1 if self.over is self.along else self.along.count)

    @property
    def shares_rows(self) -> bool:
        """Whether threads that share pixels share rows of an outer axis, not units."""
        return any(axis.count > self.units for axis in self.outer)


def plan_walk(geometry: Geometry) -> Walk:
    """Plan pairs of tiles along the innermost axis if one tile cannot hold it, else on two rows."""
    axes = collapse(geometry.walked_axes)
    inner, outer = axes[-1], axes[:-1]
    if inner.count > TILE_ROWS:
        units = -(-inner.count // (PAIR * TILE_ROWS))
        rows = -(-inner.count // (PAIR * units))
        apart = min(rows, inner.count - rows)
        return Walk(outer, inner, inner, rows, PAIR, apart, units, PAIR * rows, inner.count - apart - rows)
    if outer:
        units = -(-outer[-1].count // PAIR)
        return Walk(outer[:-1], inner, outer[-1], inner.count, PAIR, 1, units, PAIR, outer[-1].count - PAIR)
    return Walk((), inner, inner, inner.count, 1, 0, 1, inner.count, 0)
