"""The table of encoders beside onnxruntime and OpenVINO."""

from __future__ import annotations

import pytest

from scripts.benchmarks.frame import run
from scripts.benchmarks.measurements import encoders

SMALL = ["--layers=1", "--width=16", "--heads=2", "--inner=32", "--alternations=1"]


def test_rows_are_programs_and_columns_lengths() -> None:
    table = encoders.to_markdown({16: {"one": 1.25, "other": 2.0}, 512: {"one": 30.0, "other": 40.0}})
    assert "| program | 16 tokens, ms | 512 tokens, ms |" in table
    assert "| one | 1.2 | 30.0 |" in table and "| other | 2.0 | 40.0 |" in table


def test_texts_are_those_of_their_length() -> None:
    assert encoders.texts(5, 3, 2).shape == (2, 5, 3)
    assert (encoders.texts(5, 3) == encoders.texts(5, 3)).all()


@pytest.mark.parametrize(("more", "count"), [(["--no-openvino"], 6), ([], 8)])
def test_every_program_is_measured(more: list[str], count: int, capsys: pytest.CaptureFixture[str]) -> None:
    if not more:
        pytest.importorskip("openvino")
        pytest.importorskip("nncf")
    assert run(encoders.BENCHMARK, [*SMALL, *more, "--lengths", "4", "8"]) == 0
    lines = [x for x in capsys.readouterr().out.splitlines() if x.startswith("| ")]
    assert len(lines) == count + 2 and lines[2].startswith("| qglow float32 |")
