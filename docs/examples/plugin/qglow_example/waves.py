"""A data source of another package: noisy sine waves, as many as are asked for.

`qglow profile MODEL --data waves:64` finds it by the entry point
`waves = qglow_example.waves:open_waves` of the group `qglow.data_sources`; see
docs/how-to/add-a-data-source.md.
"""

from __future__ import annotations

import numpy as np

from qglow.profiling.samples import InputSpecs, Sample
from qglow.profiling.sources import IndexedSource


class Waves(IndexedSource):
    """The same `count` waves every time, for each float input of a model."""

    def __init__(self, count: int, specs: InputSpecs) -> None:
        self._count, self._specs = count, specs

    @property
    def size(self) -> int:
        """Number of samples."""
        return self._count

    def read(self, index: int) -> Sample:
        """Make one sample: a wave along the elements of each input, in its shape."""
        random = np.random.default_rng(index)
        made = {}
        for name, spec in self._specs.items():
            shape = tuple(size or 1 for size in spec.shape)
            time = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
            wave = np.sin(time * random.uniform(0.01, 0.5)) + 0.1 * random.standard_normal(shape)
            made[name] = wave.astype(spec.dtype)
        return Sample(f"wave {index}", made)


def open_waves(rest: str, specs: InputSpecs) -> Waves:
    """Open `waves:COUNT`: what the entry point names. Raises ValueError for what is no positive number."""
    count = int(rest)
    if count < 1:
        raise ValueError("the number of waves is at least 1")
    return Waves(count, specs)
