"""Copies of rows that lie farther apart, so that rows of a tile do not share sets of a cache.

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


def share_sets(instruction: Instruction) -> bool:
    """Whether rows of `src` share sets of the first-level cache."""
    return _row_bytes(instruction) % SHARED_BYTES == 0


def spread_pitch(instruction: Instruction) -> int:
    """Bytes from one copied row to the next."""
    return _row_bytes(instruction) + LINE_BYTES


def spread_bytes(instruction: Instruction) -> int:
    """Bytes of the copies of all rows."""
    return instruction.operand("src").type.shape[0] * spread_pitch(instruction)


def spread_rows(site: Site) -> None:
    """Emit copies of all rows to working memory.

    Every thread copies all of them, and then need not wait for others.
    """
    e, src, length = site.e, site["src"], _row_bytes(site.instruction)
    with live_rows(site, 0, src.shape[0], 1) as row:
        source = e.offset(src.pointer, e.scaled(row, src.strides[0] * src.element_bytes))
        dest = e.offset(site.scratch, e.scaled(row, spread_pitch(site.instruction)))
        copy_bytes(e, dest, source, length, site.target.byte_lanes)


def _row_bytes(instruction: Instruction) -> int:
    kind = instruction.operand("src").type
    return kind.shape[1] * kind.element.size
