"""Independent work of numpy's on all processors: it does not hold Python's lock while it computes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

WORTHWHILE = 1 << 20
"""Elements to compute below which threads cost more than they win."""
_MOST = 8

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def each(function: Callable[[_Item], _Result], items: Iterable[_Item], elements: int) -> list[_Result]:
    """Apply `function` to every item, in order; results do not depend on the number of threads.

    elements: number of array elements that are computed in all. If the function raises for several items,
    the error of the first of them in order is raised.
    """
    count = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1, _MOST)
    if count == 1 or elements < WORTHWHILE:
        return [function(item) for item in items]
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(function, items))
