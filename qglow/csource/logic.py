"""C of comparisons and conversions between element types."""

from __future__ import annotations

import numpy as np

from qglow.core.types import ElementType
from qglow.csource.writer import REALS, SourceSite, c_type, emits
from qglow.instructions.ops.logic import Cast, Compare

_RELATIONS = {
    "equal": "==",
    "not-equal": "!=",
    "greater": ">",
    "greater-or-equal": ">=",
    "less": "<",
    "less-or-equal": "<=",
}


@emits(Compare)
def compare(site: SourceSite) -> None:
    """Relations are C's, of NaN too."""
    sign = _RELATIONS[site.operation.relation]
    with site.writer.loops(site.shape("dest")) as indices:
        site.store("dest", indices, f"{site.load('lhs', indices)} {sign} {site.load('rhs', indices)}")


@emits(Cast)
def cast(site: SourceSite) -> None:
    """Reals lose their fraction and saturate, NaN becomes 0; integers wrap; all but 0 is true."""
    source, to = site.kind("src").element, site.kind("dest").element
    with site.writer.loops(site.shape("dest")) as indices:
        x = site.declared(c_type(source), "x", site.load("src", indices))
        if to is ElementType.BOOL:
            site.store("dest", indices, f"{x} != 0")
        elif source in REALS and to not in REALS:
            limits = np.iinfo(to.dtype)
            low, high = float(limits.min).hex(), float(limits.max).hex()
            ends = f"{x} > 0 ? {site.highest('dest')} : {site.lowest('dest')}"
            inside = f"(double){x} > {low} && (double){x} < {high}"
            whole = site.declared(
                c_type(to), "whole", f"{inside} ? ({c_type(to)}){x} : {x} != {x} ? 0 : {ends}"
            )
            site.store("dest", indices, whole)
        elif to in REALS:
            site.store("dest", indices, f"({c_type(to)}){x}")
        else:
            site.store("dest", indices, f"(uint64_t){x}")
