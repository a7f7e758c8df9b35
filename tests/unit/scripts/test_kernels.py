"""Where time goes: work of one shape is one row, small rows are one, and nothing is lost."""

from __future__ import annotations

from qglow.toolchain import selected_program
from scripts.benchmarks.measurements.kernels import Measured, Work, title_of, to_markdown, together
from tests.unit.report.digits import example


def test_equal_work_is_one_row_and_little_work_the_last() -> None:
    work = [Work("a", 1, 30.0, 10), Work("b", 1, 0.25, 0), Work("c", 1, 60.0, 0), Work("a", 1, 40.0, 20)]
    assert together([*work, Work("d", 1, 0.5, 4)]) == [
        Work("a", 2, 70.0, 30),
        Work("c", 1, 60.0, 0),
        Work("all else", 2, 0.75, 4),
    ]


def test_shares_are_of_the_whole_and_of_the_peak() -> None:
    rows = (Work("1x1", 2, 30.0, 6000), Work("elementadd", 1, 10.0, 0))
    text = to_markdown([Measured("m", "avx2", rows, 400.0)])
    assert "`m`, avx2: 40 us; peak 0 multiply-adds a ns." in text
    assert "| 1x1 | 2 | 30 | 75.0% | 50% |" in text and "| elementadd | 1 | 10 | 25.0% |  |" in text


def test_products_are_told_apart_by_shape() -> None:
    program = selected_program(example().quantized.graph, "generic")
    titles = {title_of(instruction) for instruction in program.code if instruction.kernel}
    wanted = {"3x3, 1 to 16, 8x8", "3x3 by 2, 64 to 64 in 64 groups, 8x8", "fullyconnected 1x64 by 64x10"}
    assert wanted < titles and {"elementadd", "quantize"} < titles
