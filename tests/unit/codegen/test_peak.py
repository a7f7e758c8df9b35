"""The measured peak is one of the right size, on every instruction set."""

from __future__ import annotations

import pytest

from qglow.codegen.peak import measure_peak
from qglow.core.errors import UsageError
from qglow.kernels.emit.target import VectorTarget
from qglow.targets.x86.isas import AMX, host_isas
from tests.runtimes import RUNNABLE


@pytest.mark.parametrize("is_float", [False, True])
@pytest.mark.parametrize("isa", RUNNABLE, ids=lambda isa: isa.name)
def test_products_are_done_and_ticks_are_timed(isa: VectorTarget, is_float: bool) -> None:
    peak = measure_peak(isa, is_float)
    assert 0.1 < peak.ns_per_tick < 50.0  # counters of Arm tick 24 to 1,000 times in a microsecond
    # No core does four of the widest operations a cycle at 10 GHz, and none is as slow as one in 100 ns.
    widest = max(isa.byte_lanes, 16 * 16 * 64 if isa.tile("tdpbusd") and not isa.emulates_amx else 0)
    assert isa.float_lanes / 100 < peak.products_per_ns < 40 * widest or isa.emulates_amx


@pytest.mark.skipif(AMX in host_isas(), reason="the host has AMX")
def test_what_the_host_lacks_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot run"):
        measure_peak(AMX)
