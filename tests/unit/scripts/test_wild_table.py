"""The benchmark of other people's models: its table, its promises, and how it judges outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from scripts.benchmarks.measurements.wild import WildRow, _error, _sqnr_db, measure, to_markdown
from tests.unit.importer.tiny import save, tiny_model


def row(**changes: object) -> WildRow:
    values = {"name": "m", "error": 1e-6, "int8": 3, "real": 2, "opaque": 1, "share": 0.75, "sqnr_db": 30.0}
    return WildRow(**{**values, "verdict": "good", "ratio": 4.0, "rival": None, **changes})  # type: ignore[arg-type]


def test_the_table_has_a_line_a_model_and_the_mean_of_the_ratios() -> None:
    text = to_markdown([row(), row(name="n", sqnr_db=None, ratio=1.0, rival=3.0, share=None)])
    assert "| m | 1e-06 | 3 | 1 | 1 | 75 | 30.0 | good | 4.00 | none |" in text
    assert "| n | 1e-06 | 3 | 1 | 1 | none | exact | good | 1.00 | 3.00 |" in text
    assert "Geometric mean of the ratios of times: 2.00, against ORT int8 3.00 for 1 models." in text
    assert "Mean share of the multiply-adds in int8: 75 %." in text
    assert "times: 4.00. Mean share" in to_markdown([row()])


@pytest.mark.parametrize(
    ("changes", "count"), [({}, 0), ({"error": 0.01}, 1), ({"verdict": "broken", "error": 1.0}, 2)]
)
def test_promises_that_do_not_hold_are_named(changes: dict[str, object], count: int) -> None:
    assert len(row(**changes).failures) == count


def test_the_worst_output_counts() -> None:
    expected = {"a": np.array([1.0, -2.0]), "b": np.array([10.0]), "empty": np.zeros(0)}
    found = {"a": np.array([1.0, -1.0]), "b": np.array([10.0]), "empty": np.zeros(0)}
    assert _error(found, expected) == 0.5
    assert _sqnr_db([found], [expected]) == pytest.approx(10 * np.log10(5))
    assert _sqnr_db([expected], [expected]) is None
    assert _error({**found, "b": np.zeros(3)}, expected) == np.inf


def test_a_model_whose_results_have_shapes_that_data_decides_is_measured(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["scores"]),
        helper.make_node("Relu", ["scores"], ["positive"]),
        helper.make_node("NonZero", ["positive"], ["places"]),
    ]
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(0, 1, (4, 3, 1, 1)).astype(np.float32)}
    model = tiny_model(nodes, {"x": [1, 3, 5, 5]}, ["places"], weights, output_type=TensorProto.INT64)
    save(model, tmp_path, "list.onnx")
    samples = {f"{k}|x": rng.normal(0, 1, (1, 3, 5, 5)).astype(np.float32) for k in range(2)}
    np.savez(tmp_path / "list.inputs.npz", **samples)  # type: ignore[arg-type]
    found = measure("list", 2, tmp_path)
    assert found.error == 0.0 and not found.failures and found.ratio > 0.0
    assert found.sqnr_db is not None and found.sqnr_db > 25.0, "of what NonZero reads"
