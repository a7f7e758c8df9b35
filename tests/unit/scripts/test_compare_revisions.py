"""What the comparison of two checkouts says, and that a worker answers, fails and ends."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from qglow.core.errors import ModelError, UsageError
from qglow.report.bench import result_of_turns
from scripts.benchmarks.frame import run
from scripts.benchmarks.measurements.compare_revisions import (
    BASE,
    BENCHMARK,
    HERE,
    Row,
    _different,
    to_json,
    to_markdown,
)
from scripts.benchmarks.models.evaluated import REPOSITORY
from scripts.benchmarks.workers.process import Worker


def row(ratio: float, *different: str) -> Row:
    turns = np.array([np.full(20, 2.0), np.full(20, 2.0 * ratio)])
    return Row("m", different, result_of_turns({BASE: 1, HERE: 1}, turns), {})


def test_equal_bits_are_no_failure_and_ratios_have_a_geometric_mean() -> None:
    rows = [row(0.5), row(8.0)]
    assert [failure for each in rows for failure in each.failures()] == []
    text = to_markdown(rows)
    assert "| m | same | 2 | 1 | 0.500 | 0.500 to 0.500 |" in text
    assert "over 2 models: 2.000." in text


def test_every_difference_is_a_failure() -> None:
    found = row(1.0, "model.qdq.onnx", "scores")
    assert found.cells()[1] == "differ: model.qdq.onnx, scores"
    assert list(found.failures()) == ["m: model.qdq.onnx is not the same", "m: scores is not the same"]
    assert json.loads(to_json([found]))["models"][0]["different"] == ["model.qdq.onnx", "scores"]


def test_what_only_one_can_build_is_a_failure_and_what_neither_can_is_none() -> None:
    one = Row("m", None, None, {HERE: "no Loop"})
    assert list(one.failures()) == ["m: fails in here only: no Loop"]
    both = Row("m", None, None, {BASE: "no Loop", HERE: "no Loop"})
    assert list(both.failures()) == [] and both.cells()[1] == "fails in base, here"
    assert "Geometric mean" not in to_markdown([one, both])


def test_an_output_that_one_revision_lacks_is_different() -> None:
    assert list(_different({"a": "1", "b": "2"}, {"a": "1", "c": "2"})) == ["b", "c"]
    assert list(_different({"a": "1"}, {"a": "2"})) == ["a"]


def test_options_that_cannot_be_are_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(BENCHMARK, ["--base", str(tmp_path)]) == UsageError.exit_code
    assert "is no checkout of qglow" in capsys.readouterr().err
    assert run(BENCHMARK, ["--base", str(REPOSITORY), "--alternations", "3"]) == UsageError.exit_code
    assert run(BENCHMARK, ["--base", str(REPOSITORY), "--models", "digit"]) == UsageError.exit_code
    assert "digit; there are digits" in capsys.readouterr().err


def test_the_base_has_to_be_named() -> None:
    parser: argparse.ArgumentParser = BENCHMARK.parser("compare-revisions")
    with pytest.raises(SystemExit):
        parser.parse_args([])


def test_a_worker_answers_errors_and_goes_on() -> None:
    with Worker("scripts.benchmarks.workers.revision", [str(REPOSITORY)], {}) as worker:
        with pytest.raises(ModelError, match="missing.onnx"):
            worker.ask("load", model="missing.onnx")
        assert worker.ask("load", model=REPOSITORY / "calib_data" / "digits.onnx") is None


def test_a_checkout_without_qglow_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with (
        Worker("scripts.benchmarks.workers.revision", [str(tmp_path)], {}) as worker,
        pytest.raises(ModelError, match="has ended"),
    ):
        worker.ask("load", model="any.onnx")
    assert f"{tmp_path} has no qglow of its own" in capfd.readouterr().err
