"""Copies of float rows that lie farther apart, so that rows of a tile do not share sets of a cache.

The first-level cache chooses a set by the lower bits of an address. Rows a multiple of `SHARED_BYTES` apart
have all their elements of one k in one set, which holds 8 or 12 lines, and weights and sums need some of
them.
"""

from __future__ import annotations

from qglow.instructions.program import Instruction
from qglow.kernels.convolution.border import copy_bytes
from qglow.kernels.emit.kernel import Site
from qglow.kernels.products.matmul import live_rows

SHARED_BYTES = 4096
"""Bytes from an address to the next of the same set."""
LINE_BYTES = 64
"""Bytes by which copied rows are farther apart, a line of the cache."""
FEW_ROWS = 4
"""Most rows that are read where they lie: a set has room for so many."""


def share_sets(depth: int) -> bool:
    """Whether rows of so many floats share sets of the first-level cache."""
    return 4 * depth % SHARED_BYTES == 0


def spread_pitch(depth: int) -> int:
    """Bytes from one copied row to the next."""
    return 4 * depth + LINE_BYTES


def spread_bytes(instruction: Instruction) -> int:
    """Bytes of the copies of all rows."""
    rows, depth = instruction.operand("src").type.shape
    return rows * spread_pitch(depth)


def spread_rows(site: Site) -> None:
    """Emit copies of all rows to working memory.

    Every thread copies all of them, and then need not wait for others.
    """
    e, (rows, depth) = site.e, site["src"].shape
    with live_rows(site, 0, rows, 1) as row:
        source = e.offset(site["src"].pointer, e.scaled(row, 4 * depth))
        dest = e.offset(site.scratch, e.scaled(row, spread_pitch(depth)))
        copy_bytes(e, dest, source, 4 * depth, site.target.byte_lanes)
