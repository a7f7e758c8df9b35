"""The table of products by weights of 16 bits."""

from __future__ import annotations

import pytest

from qglow.core.types import HALF_TYPES
from scripts.benchmarks.frame import run
from scripts.benchmarks.measurements import half
from tests.runtimes import PLAIN


def test_a_row_a_shape_and_ratios_to_float32(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--sizes", "16", "--rows", "1", "3", "--isas", PLAIN, "--turns", "1"]
    assert run(half.BENCHMARK, options) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) == 4 and "16 x 16" in lines[2] and PLAIN in lines[3]
    found = {"float32": 30.0, "float16": 20.0, "bfloat16": 15.0}
    assert half.row(1, 8, "avx2", found)[-2:] == ("1.50", "2.00")


def test_weights_are_of_the_type_that_is_measured() -> None:
    for element, kind in HALF_TYPES.items():
        assert {v.type.element for v in half.product(1, 4, element).constants()} == {kind}
