"""What the table of speed says, and what is too slow."""

from __future__ import annotations

import pytest

from scripts.benchmarks.measurements.speed import (
    FLOAT,
    INT8,
    ORT_FLOAT,
    ORT_OWN,
    ORT_QDQ,
    VINO_QDQ,
    Row,
    to_markdown,
    with_means,
)


def row(name: str, times: dict[str, float]) -> Row:
    return Row(name, times, {key: value / times[INT8] for key, value in times.items()})


SLOW = row("m", {INT8: 0.2, FLOAT: 0.5, ORT_FLOAT: 0.1, ORT_QDQ: 0.3, ORT_OWN: 0.15})


def test_what_is_faster_is_named_unless_calls_are_most_of_the_time() -> None:
    assert SLOW.slower_than() == [ORT_FLOAT, ORT_OWN]
    assert row("m", {INT8: 0.2, ORT_QDQ: 0.3, VINO_QDQ: 0.1}).slower_than() == [VINO_QDQ]
    assert row("tiny", {INT8: 0.04, FLOAT: 0.05, ORT_FLOAT: 0.01, ORT_QDQ: 0.01}).slower_than() == []
    assert row("fast", {INT8: 0.2, FLOAT: 0.5, ORT_FLOAT: 0.3, ORT_QDQ: 0.3}).slower_than() == []


def test_the_ratio_is_to_the_faster_of_onnxruntimes_int8_models() -> None:
    assert SLOW.int8_ratio() == pytest.approx(0.75)
    assert row("m", {INT8: 0.2, ORT_QDQ: 0.3}).int8_ratio() == pytest.approx(1.5)


def test_programs_that_were_not_measured_have_no_column() -> None:
    table = to_markdown([SLOW, row("n", {INT8: 2.0, FLOAT: 5.0, ORT_FLOAT: 4.0, ORT_QDQ: 3.0})])
    titles, _, first, second = table.split("\n")[:4]
    assert "OpenVINO" not in titles
    assert first == "| m | 0.200 | 0.500 | 0.100 | 0.300 | 0.150 | 0.75 |"
    assert second == "| n | 2.00 | 5.00 | 4.00 | 3.00 | - | 1.50 |"


def test_means_are_over_the_models_that_have_a_ratio() -> None:
    both = {INT8: 2.0, ORT_QDQ: 4.0, VINO_QDQ: 1.0}
    text = with_means(to_markdown([row("m", both), row("n", {INT8: 2.0, ORT_QDQ: 16.0})]))
    assert "| 2.00 | 0.50 |" in text and "| 8.00 | - |" in text
    assert "over 2 models: ORT int8 / qglow int8 4.00, OpenVINO int8 / qglow int8 0.50.\nMilli" in text
