"""Archives of arrays, and forms of inputs that they are for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from qglow.profiling.samples import InputSpec

FLOAT = np.dtype(np.float32)
ONE = {"x": InputSpec((2,), FLOAT)}
TWO = {"x": InputSpec((2,), FLOAT), "t": InputSpec((), np.dtype(np.int64))}


def ramp(samples: int) -> Any:
    return np.arange(2 * samples, dtype=np.float32).reshape(samples, 2)


def save(path: Path, **arrays: Any) -> Path:
    np.savez(path / "d.npz", **arrays)
    return path / "d.npz"
