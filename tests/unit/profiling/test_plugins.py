"""Data sources of other packages."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pytest

from qglow.core.errors import DataError, UsageError
from qglow.profiling import plugins
from qglow.profiling.datasets import open_data
from qglow.profiling.plugins import GROUP
from qglow.profiling.samples import InputSpec, InputSpecs, Sample
from qglow.profiling.sources import IndexedSource

SPECS = {"x": InputSpec((2,), np.dtype(np.float32))}


class Counting(IndexedSource):
    def __init__(self, count: int) -> None:
        self._count = count

    @property
    def size(self) -> int:
        return self._count

    def read(self, index: int) -> Sample:
        return Sample(str(index), {"x": np.full(2, index, np.float32)})


def open_counting(rest: str, specs: InputSpecs) -> Counting:
    assert list(specs) == ["x"]
    return Counting(int(rest))


def open_nothing(rest: str, specs: InputSpecs) -> None:
    return None


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    here = __name__
    points = [
        EntryPoint("counting", f"{here}:open_counting", GROUP),
        EntryPoint("nothing", f"{here}:open_nothing", GROUP),
        EntryPoint("missing", f"{here}:open_missing", GROUP),
    ]

    def entry_points(group: str) -> list[Any]:
        assert group == GROUP
        return points

    monkeypatch.setattr(plugins, "entry_points", entry_points)


def test_samples_are_those_of_the_source() -> None:
    data = open_data("counting:5", SPECS, select="1::2")
    assert data.size == 2
    assert [sample.key for sample in data] == ["1", "3"]


def test_what_the_source_refuses_is_told() -> None:
    with pytest.raises(DataError, match="data source 'counting' .* cannot open 'few'"):
        open_data("counting:few", SPECS)


def test_source_of_another_type_is_refused() -> None:
    with pytest.raises(UsageError, match="gives a NoneType"):
        open_data("nothing:1", SPECS)


def test_source_that_cannot_be_loaded_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be loaded"):
        open_data("missing:1", SPECS)


def test_other_names_are_functions_as_before() -> None:
    with pytest.raises(UsageError):
        open_data("no_such_module:samples", SPECS)
