"""Measurements of kernels on this processor, kept between processes.

A file for each instruction set, processor and version of the compiler, in the user's cache:

    {"format": 1, "measured": {KEY: {KERNEL: [RATIO, ...]}}}

KEY is `kernels.choice.kernel_key`, KERNEL a kernel in words, and RATIO its time divided by that of
the kernel with the least estimate, measured beside it. Or KEY is
`kernels.epilogue_choice.epilogue_key`, KERNEL an alternative to the usual epilogue, and RATIO its
time divided by the usual one's. A damaged file counts as none.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from llvmlite import binding

from qglow.codegen.cache import compiler_version, default_folder
from qglow.core.files import sha256_hex, write_atomically
from qglow.core.reading import MALFORMED
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.selection.choice import Choices

FORMAT = 1
CONFIRMED = 2
"""Measurements that a kernel needs before it is chosen: among many kernels, one is fast by chance."""
WORTHWHILE = 0.97
"""Largest mean ratio of times with which a kernel is chosen."""

Ratios = dict[str, dict[str, list[float]]]
"""Ratios by key and kernel."""


@dataclass
class MeasuredKernels:
    """Measurements of kernels for an instruction set. `path` is their file."""

    path: Path
    ratios: Ratios = field(default_factory=dict)

    @staticmethod
    def load(target: VectorTarget) -> MeasuredKernels:
        """Load the measurements in the user's cache for this processor and compiler."""
        path = choices_path(target)
        return MeasuredKernels(path, _read(path))

    def save(self) -> None:
        """Write the file, whole or not at all. Raises InputFileError."""
        content = {"format": FORMAT, "measured": self.ratios}
        write_atomically(self.path, json.dumps(content, indent=1, sort_keys=True) + "\n")

    def add(self, key: str, kernel: str, ratio: float) -> None:
        """Note one measurement."""
        self.ratios.setdefault(key, {}).setdefault(kernel, []).append(ratio)

    def best(self, key: str) -> str | None:
        """The kernel with the least mean ratio, confirmed or not; None if none is WORTHWHILE."""
        found = {kernel: statistics.mean(ratios) for kernel, ratios in self.ratios.get(key, {}).items()}
        kernel = min(found, key=lambda name: (found[name], name), default=None)
        return kernel if kernel is not None and found[kernel] <= WORTHWHILE else None

    def is_confirmed(self, key: str, kernel: str) -> bool:
        """Whether a kernel was measured at least CONFIRMED times."""
        return len(self.ratios[key][kernel]) >= CONFIRMED

    def choices(self) -> Choices:
        """Confirmed kernels, by key, to choose instead of those with the least estimate."""
        best = {key: self.best(key) for key in self.ratios}
        return {
            key: kernel
            for key, kernel in sorted(best.items())
            if kernel is not None and self.is_confirmed(key, kernel)
        }


def saved_choices(target: VectorTarget) -> Choices:
    """The choices in the user's cache for an instruction set of this processor; none without a file."""
    return MeasuredKernels.load(target).choices()


def choices_path(target: VectorTarget) -> Path:
    """The file for this processor and compiler in the folder that QGLOW_CACHE names."""
    version = sha256_hex(f"{compiler_version()}\0{binding.get_host_cpu_name()}".encode())[:16]
    return default_folder() / "kernels" / f"{target.name}-{version}.json"


def _read(path: Path) -> Ratios:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return _checked(content["measured"]) if content["format"] == FORMAT else {}
    except (OSError, *MALFORMED):
        return {}


def _checked(measured: Mapping[str, Mapping[str, list[float]]]) -> Ratios:
    """Raises ValueError, TypeError or AttributeError for anything but positive ratios."""
    ratios = {
        str(key): {str(kernel): [float(r) for r in found] for kernel, found in kernels.items()}
        for key, kernels in measured.items()
    }
    every = [found for kernels in ratios.values() for found in kernels.values()]
    if not all(found and min(found) > 0.0 for found in every):
        raise ValueError("a ratio is not positive")
    return ratios
