"""Features of 64-bit Arm processors as the system names them, of which LLVM does not tell all.

Linux lists them in /proc/cpuinfo for every core, and as bits for the C library (asm/hwcap.h); macOS has a
sysctl for each.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from pathlib import Path

LINUX_NAMES = {"asimddp": "dotprod", "i8mm": "i8mm"}
"""LLVM's names of what /proc/cpuinfo calls features."""
LINUX_BITS = {"dotprod": (16, 20), "i8mm": (26, 13)}
"""Entry of the auxiliary vector (AT_HWCAP, AT_HWCAP2) and bit of a feature."""
DARWIN_NAMES = {"dotprod": "hw.optional.arm.FEAT_DotProd", "i8mm": "hw.optional.arm.FEAT_I8MM"}


def arm_features() -> frozenset[str]:
    """Features of this processor by LLVM's names, none where the system does not tell."""
    if platform.system() == "Darwin":
        return from_sysctl(_sysctl)
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        text = ""
    found = from_cpuinfo(text)
    return from_bits(_auxiliary) if found is None else found


def from_cpuinfo(text: str) -> frozenset[str] | None:
    """Features that every core of /proc/cpuinfo has; None where it lists none, as under an emulator."""
    rows = [line.partition(":") for line in text.splitlines()]
    cores = [set(value.split()) for key, _, value in rows if key.strip() == "Features"]
    if not cores:
        return None
    common = set.intersection(*cores)
    return frozenset(name for known, name in LINUX_NAMES.items() if known in common)


def from_bits(read: Callable[[int], int]) -> frozenset[str]:
    """Features by bits of the auxiliary vector, whose entries `read` gives by number."""
    return frozenset(name for name, (entry, bit) in LINUX_BITS.items() if read(entry) >> bit & 1)


def from_sysctl(read: Callable[[str], int]) -> frozenset[str]:
    """Features by the numbers that `read` gives for names of macOS, 0 for unknown ones."""
    return frozenset(name for name, key in DARWIN_NAMES.items() if read(key))


def _auxiliary(entry: int) -> int:
    try:
        getauxval = ctypes.CDLL(None).getauxval
    except (AttributeError, OSError):
        return 0
    getauxval.restype, getauxval.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    return int(getauxval(entry))


def _sysctl(name: str) -> int:
    value, size = ctypes.c_int64(0), ctypes.c_size_t(8)
    try:
        call = ctypes.CDLL(None).sysctlbyname
    except (AttributeError, OSError):
        return 0
    refused = call(name.encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0))
    return 0 if refused else int(value.value)
