"""Lowering: from graphs to instructions. The only package that depends on both representations.

`lower(graph, backend)` decomposes operators that the target does not implement, orders the nodes for a
small peak memory, chooses the axis order of every tensor and emits instructions. Loading a stored program
must not import the lowering, so the names of this package are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qglow.core.lazy import lazy_names

if TYPE_CHECKING:
    from qglow.lowering.backend import ANY, Backend
    from qglow.lowering.driver import lower

__all__ = ["ANY", "Backend", "lower"]

__getattr__ = lazy_names(__name__, {"ANY": "backend", "Backend": "backend", "lower": "driver"})
