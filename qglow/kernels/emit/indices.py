"""Indices that a model computes, which no memory outside of an axis may be read by."""

from __future__ import annotations

from qglow.kernels.emit.builder import I64, Index, Value
from qglow.kernels.emit.kernel import Site


def chosen_index(site: Site, position: Index, extent: int, name: str = "indices") -> Value:
    """Load an index of an axis from an operand; negative ones count from the end, far ones are clamped."""
    e, indices = site.e, site[name]
    place = e.offset(indices.pointer, e.scaled(position, indices.element_bytes))
    value = e.load(place, indices.element)
    if value.type != I64:
        value = e.b.sext(value, I64)
    # Indices are a caller's data: whatever they are, nothing outside of the axis may be read.
    negative = e.b.icmp_signed("<", value, e.index(0))
    value = e.b.select(negative, e.b.add(value, e.index(extent)), value)
    return e.maximum(e.minimum(value, extent - 1), 0)
