"""Predicted noise of values and weights, and the reasons that a verdict names."""

from __future__ import annotations

import math

import numpy as np
import pytest

import qglow
from qglow.core.types import Array
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.tensors import TensorRange
from qglow.quantization.value_noise import ValueNoise, value_noise
from qglow.tuning.noise_sources import (
    BRANCH_SHARE,
    PlaceNoise,
    noise_sources,
    predicted_sqnr_db,
    worst_values,
)
from qglow.tuning.self_check import check_model
from scripts.benchmarks.models.encoders import EncoderSize, drawn_encoder
from tests.zoo import REPOSITORY

DIGITS = REPOSITORY / "calib_data" / "digits.onnx"
CALIBRATION = REPOSITORY / "calib_data" / "calib.npz"
NORMAL = np.random.default_rng(1).normal(size=20_000).astype(np.float32)


def noise_of(elements: Array, low: float, high: float) -> ValueNoise:
    """Noise of elements in 256 levels from `low` to `high`."""
    statistics = ValueProfile.of_shape((len(elements),))
    statistics.observe(elements)
    scale = (high - low) / 255
    tensor = TensorRange(
        "v", "asymmetric", "kl", statistics.low, statistics.high, (1,), low, high, 0.0, scale, 0
    )
    (found,) = value_noise((tensor,), {"v": statistics})
    return found


def test_rounding_is_that_of_the_elements() -> None:
    found = noise_of(NORMAL, -6.4, 6.35)
    real = np.mean((np.rint(NORMAL / 0.05) * 0.05 - NORMAL) ** 2) / np.mean(NORMAL**2)
    assert found.rounding == pytest.approx(real, rel=0.02) and found.clipping == 0.0
    assert found.levels > 100 and found.extreme < 2 and found.sentinel is None


def test_clipping_is_energy_and_not_only_elements() -> None:
    found = noise_of(np.concatenate([NORMAL, np.full(20, 100, np.float32)]), -6.4, 6.35)
    outside = 20 * (100 - 6.35) ** 2 / (np.sum(NORMAL**2) + 20 * 100**2)
    assert found.clipping == pytest.approx(outside, rel=0.02) and found.clipping > 0.7


def test_one_extreme_leaves_few_levels() -> None:
    found = noise_of(np.concatenate([NORMAL, np.array([200], np.float32)]), -6.4, 200)
    assert found.extreme > 40 and found.levels < 10 and found.rounding > found.clipping


def test_a_mask_is_no_signal() -> None:
    masked = np.concatenate([NORMAL, NORMAL - np.float32(10_000)])
    found = noise_of(masked, -10_004.0, 4.0)
    assert found.sentinel == pytest.approx(-10_000, rel=0.01)
    assert 0.5 < found.rounding <= 1.0


@pytest.mark.parametrize("value", [0.0, -0.0])
def test_zeros_lose_nothing(value: float) -> None:
    statistics = ValueProfile.of_shape((4,))
    statistics.observe(np.full(4, value, np.float32))
    tensor = TensorRange("v", "asymmetric", "kl", 0.0, 0.0, (), 0.0, 0.0, 0.0, 1.0, 0)
    assert value_noise((tensor,), {"v": statistics}) == ()


def test_prediction_orders_models_as_measuring_does() -> None:
    model = qglow.load_model(DIGITS)
    profile = model.profile(CALIBRATION, samples=32)
    measured, predicted = [], []
    for calibration in ("minmax", "percentile:99", "percentile:90", "percentile:51"):
        made = model.quantize(profile, calibration=calibration, repair=False)
        verdict = made.verdict
        assert verdict is not None and verdict.sqnr_db is not None
        measured.append(verdict.sqnr_db)
        predicted.append(predicted_sqnr_db(noise_sources(made._parts, profile.by_name())))
    assert measured == sorted(measured, reverse=True) and predicted == sorted(predicted, reverse=True)
    assert all(abs(one - other) < 12 for one, other in zip(measured, predicted, strict=True))


def test_the_worst_values_name_their_reason() -> None:
    model = qglow.load_model(DIGITS)
    made = model.quantize(model.profile(CALIBRATION, samples=32), calibration="percentile:51", repair=False)
    assert made.verdict is not None and made.verdict.word == "broken"
    assert len(made.verdict.worst) == 5
    assert all("percentile:51.0 clips" in worst.reason for worst in made.verdict.worst)
    levels = [worst.sqnr_db for worst in made.verdict.worst]
    assert levels == sorted(levels) and all(math.isfinite(level) for level in levels)


def test_weights_are_places_too() -> None:
    model = qglow.load_model(DIGITS)
    profile = model.profile(CALIBRATION, samples=32)
    made = model.quantize(profile, per_tensor=True, repair=False)
    sources = noise_sources(made._parts, profile.by_name())
    assert any(source.reason.startswith("rounding of the weights of ") for source in sources)
    assert [s.noise for s in sources] == sorted((s.noise for s in sources), reverse=True)
    assert len(worst_values(sources)) == 5


def test_without_samples_the_verdict_is_predicted() -> None:
    model = qglow.load_model(DIGITS)
    verdict = model.quantize(model.profile(CALIBRATION, samples=32, keep_samples=0), repair=False).verdict
    assert verdict is not None and not verdict.is_measured and verdict.word == "good"
    assert "predicted from the profile" in str(verdict) and "keeps no samples" in verdict.note
    assert verdict.sqnr_db is not None and 20 < verdict.sqnr_db < 45


def test_the_check_can_be_left_out() -> None:
    model = qglow.load_model(DIGITS)
    profile = model.profile(CALIBRATION, samples=8)
    made = model.quantize(profile, check=False, repair=False)
    assert made.verdict is None
    again = check_model(model._loaded, profile, made._parts)
    assert again == model.quantize(profile, repair=False).verdict


def test_a_part_of_clipping_arrives_at_the_outputs() -> None:
    rounding = PlaceNoise("v", 0.5, "rounding")
    clipping = PlaceNoise("v", 0.5, "clipping", clipping=0.5)
    assert predicted_sqnr_db([rounding]) == pytest.approx(3.01, abs=0.01)
    assert predicted_sqnr_db([clipping]) == pytest.approx(13.01, abs=0.01)
    assert predicted_sqnr_db([]) == math.inf


@pytest.mark.parametrize("layers", [1, 6])
def test_branches_of_a_transformer_are_small_beside_its_stream(layers: int) -> None:
    size = EncoderSize(layers=layers, width=64, heads=4, inner=128)
    model = qglow.load_model(drawn_encoder(size)).at({"embeddings": (1, 16, 64)})
    data = {"embeddings": np.random.default_rng(1).normal(size=(8, 16, 64)).astype(np.float32)}
    measured, predicted = (model.quantize(model.profile(data, keep_samples=kept)).verdict for kept in (8, 0))
    assert measured is not None and predicted is not None and not predicted.is_measured
    assert measured.sqnr_db is not None and predicted.sqnr_db is not None
    assert abs(predicted.sqnr_db - measured.sqnr_db) < 4.0


def test_a_ruined_branch_counts_in_full() -> None:
    size = EncoderSize(layers=2, width=64, heads=4, inner=128)
    model = qglow.load_model(drawn_encoder(size)).at({"embeddings": (1, 16, 64)})
    data = {"embeddings": np.random.default_rng(1).normal(size=(8, 16, 64)).astype(np.float32)}
    profile = model.profile(data, keep_samples=0)
    made = model.quantize(profile, calibration="percentile:51", repair=False)
    sources = noise_sources(made._parts, profile.by_name())
    assert sources[0].noise > 0.01 and sources[0].share == 1.0
    assert {source.share for source in sources if source.noise < 0.01} >= {BRANCH_SHARE}
