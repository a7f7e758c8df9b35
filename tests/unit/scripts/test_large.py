"""The benchmark of a large language model, over a small one."""

from __future__ import annotations

import pytest

from scripts.benchmarks.frame import run
from scripts.benchmarks.measurements import large

SIZES = ["--layers=1", "--width=64", "--heads=2", "--groups=1", "--inner=64", "--words=50"]


@pytest.mark.slow
def test_every_step_has_its_memory_and_too_much_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(large.BENCHMARK, [*SIZES, "--context=32", "--count=3", "--most=5"]) == 1
    found = capsys.readouterr()
    lines = found.out.strip().splitlines()
    steps = ["write the model", "compile it", "load it", "add 3 tokens"]
    assert [line.split("|")[1].strip() for line in lines[2:6]] == steps
    assert all(float(line.split("|")[3]) > 20 for line in (lines[2], lines[3], lines[5]))
    assert "MiB, more than 5" in found.err
