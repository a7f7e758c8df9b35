"""How many random examples tests draw, and from which seed: few and always the same, unless fuzzing.

scripts/fuzz.sh sets QGLOW_FUZZ_SEED (any integer) and QGLOW_FUZZ_FACTOR (examples a usual one).
"""

from __future__ import annotations

import os
import zlib

SEED = int(os.environ.get("QGLOW_FUZZ_SEED", "0"))
FACTOR = int(os.environ.get("QGLOW_FUZZ_FACTOR", "1"))


def examples(usual: int) -> int:
    """Number of examples of a property, where `usual` of them are drawn in a usual run."""
    return usual * FACTOR


def seed_of(name: str) -> int:
    """Seed of the random numbers of a named test: the same one in every run with the same QGLOW_FUZZ_SEED."""
    return zlib.crc32(name.encode()) + SEED
