"""Graphs of one model for several sizes: what they have alike is in memory once."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from qglow.toolchain.bounded import LARGE, equal_bytes, every_bound
from qglow.toolchain.opened import resizable_to
from qglow.toolchain.undecided import open_model
from scripts.random_llama import LlamaSize, random_llama
from tests.unit.importer.tiny import save

SIZE = LlamaSize(layers=1, width=64, heads=2, groups=2, inner=64, words=300)
BOUNDS: dict[str, int | tuple[int, ...] | str] = {
    "batch": 1,
    "new": (1, 8),
    "past": 16,
    "total": "past + new",
}


def test_codes_that_every_import_makes_anew_are_held_once(tmp_path: Path) -> None:
    """A program for many sizes has graphs of several, each of which would hold all weights."""
    path = save(random_llama(SIZE, weights="int4"), tmp_path, "llama.onnx")
    model = resizable_to(open_model(path), BOUNDS)
    graphs = [model.form(taken)[0] for taken in every_bound(model.dimensions)]
    found = [{v.name: v.data for v in graph.constants()} for graph in graphs]
    large = [name for name, data in found[0].items() if data is not None and data.nbytes >= 1 << 13]
    assert any("codes" in name for name in large)
    assert all(found[0][name] is found[1][name] for name in large)


def test_arrays_are_equal_bit_by_bit() -> None:
    one = np.array([0.0, np.nan], np.float32)
    assert one.nbytes < LARGE
    assert equal_bytes(one, one.copy()) and not equal_bytes(one, -one)
    assert not equal_bytes(one, one.view(np.int32)) and not equal_bytes(one, one[:1])
