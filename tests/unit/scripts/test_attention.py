"""The table of attention beside its products."""

from __future__ import annotations

import pytest

from scripts.benchmarks.frame import run
from scripts.benchmarks.measurements import attention


def test_ratios_are_of_the_products() -> None:
    cells = attention.row(attention.Sizes(8, 2, 64, 128, 32), (30.0, 40.0, 20.0))
    assert cells == ("8, 2", "64", "128", "32", "30", "40", "20", "1.50")


def test_heads_of_keys_may_be_fewer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = (attention.Sizes(4, 4, 3, 20, 16), attention.Sizes(4, 2, 1, 20, 16))
    monkeypatch.setattr(attention, "SIZES", sizes)
    assert run(attention.BENCHMARK, []) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert [line.split(" | ")[:2] for line in lines[2:4]] == [["| 4, 4", "3"], ["| 4, 2", "1"]]
