"""Values that int8 does not suit are recognised: the verdict is good by default, and the report says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import qglow
from qglow import QuantizedModel
from tests.end_to_end.special_values import (
    FLOAT_MIN,
    Case,
    attention,
    clipped_outliers,
    comb,
    masked_gates,
    missing_features,
    places_of_the_largest,
    positions,
    rare_extremes,
)
from tests.unit.importer.tiny import save


def quantized(case: Case, folder: Path, repair: bool = True, scheme: str = "auto") -> QuantizedModel:
    """By default settings, checked on the samples; nothing is compiled, which would take seconds."""
    model = qglow.load_model(save(case.model, folder))
    profile = model.profile(dict(case.feeds), engine="interpreter")
    return model.quantize(profile, isa="reference", repair=repair, scheme=scheme)


def sqnr(model: QuantizedModel) -> float:
    assert model.verdict is not None and model.verdict.is_good, str(model.verdict)
    assert model.verdict.sqnr_db is not None
    return model.verdict.sqnr_db


def reasons(model: QuantizedModel) -> dict[str, str]:
    return {node.name.rstrip("_0123456789"): node.reason for node in model.report.float_nodes}


@pytest.mark.parametrize("lowest", [-10000.0, FLOAT_MIN])
def test_a_mask_that_layers_share(tmp_path: Path, lowest: float) -> None:
    made = quantized(attention("input", lowest, spread=8.0), tmp_path, scheme="cnn")
    assert sqnr(made) > 25.0
    assert "which gives float itself" in reasons(made)["Add"]
    products = [node for node in made.report.quantized if node.operator in ("MatMul", "Gemm")]
    assert len(products) == 12, "all products stay int8"


def test_a_mask_that_hides_nothing_in_the_samples_is_none_for_others(tmp_path: Path) -> None:
    """The sum of scores and mask is float whatever the samples show: others are masked."""
    made = quantized(attention("input", masked=0), tmp_path, repair=False, scheme="cnn")
    assert sqnr(made) > 25.0 and "float operators" in reasons(made)["Add"]


@pytest.mark.parametrize(
    ("kind", "lowest"),
    [("constant", float("-inf")), ("where", -1e9), ("where", float("-inf")), ("added", -1e4)],
)
def test_masks_of_other_forms(tmp_path: Path, kind: str, lowest: float) -> None:
    assert sqnr(quantized(attention(kind, lowest, layers=1), tmp_path, repair=False)) > 25.0


@pytest.mark.parametrize(
    ("case", "operator", "reason"),
    [
        (missing_features, "Add", "'x' holds the mark -9999, which would leave the rest no levels in int8"),
        (masked_gates, "Sigmoid", "'masked' holds the mark -1e+04"),
        (rare_extremes, "Add", "'c' holds the mark 400"),
        (positions, "Sigmoid", "Cast 'Cast_4' decides by its result, which rounding could turn"),
        (places_of_the_largest, "Sub", "'place' holds integers as floats, which int8 could not tell apart"),
    ],
)
def test_light_nodes_stay_float_for_a_reason(
    tmp_path: Path, case: Callable[[], Case], operator: str, reason: str
) -> None:
    assert sqnr(quantized(case(), tmp_path)) > 15.0
    made = quantized(case(), tmp_path, repair=False)
    assert reason in reasons(made)[operator], reasons(made)
    assert made.report.quantized


def test_a_comb_is_good_without_repair(tmp_path: Path) -> None:
    made = quantized(comb(), tmp_path, repair=False)
    assert sqnr(made) > 30.0
    (places,) = [tensor for tensor in made.report.tensors if tensor.value == "places"]
    assert places.calibration == "mse" and places.clipped == 0.0
    (told,) = [str(entry) for entry in made.report.log if "in place of kl" in str(entry)]
    assert "places" in told


def test_outliers_that_matter_are_kept(tmp_path: Path) -> None:
    """Rare extremes are what `kl` cuts off by intent: that these matter shows at the outputs alone."""
    made = quantized(clipped_outliers(), tmp_path)
    assert sqnr(made) > 30.0
    assert any("in place of kl" in repair.what for repair in made.report.repairs)
