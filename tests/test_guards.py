"""The guards around memory that the runtime suites rely on see a write outside."""

from __future__ import annotations

import ctypes

import pytest

from tests.runtimes import ALIGNMENT, Guarded


@pytest.mark.parametrize("size", [1, 63, 64, 1000])
def test_memory_is_aligned_and_whole(size: int) -> None:
    memory = Guarded("memory", size)
    assert memory.address % ALIGNMENT == 0
    assert memory.inside.ctypes.data == memory.address and len(memory.inside) == size
    memory.inside[:] = 0
    memory.check()


@pytest.mark.parametrize("place, where", [(-1, "before"), (-64, "before"), (100, "behind"), (163, "behind")])
def test_write_outside_is_seen(place: int, where: str) -> None:
    memory = Guarded("memory", 100)
    ctypes.memset(memory.address + place, 0, 1)
    with pytest.raises(AssertionError, match=f"{where} memory was overwritten"):
        memory.check()
