"""`tune` where the rounding of activations is all that int8 costs: int16 takes it away for least time."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import qglow
from qglow.core.types import float_type
from qglow.exporter import export_float
from qglow.graph.builder import GraphBuilder
from qglow.graph.ops.conv import Conv
from qglow.targets.x86.isas import host_isas

CHANNELS, SIZE, LAYERS = 64, 8, 3
ISA = "avx512vnni"
"""int16 takes half as long as float there."""
pytestmark = pytest.mark.skipif(ISA not in [isa.name for isa in host_isas()], reason=f"the host has no {ISA}")
GOAL = qglow.Goal(min_sqnr_db=50.0)


def exact_weights(random: np.random.Generator) -> np.ndarray:
    """Reals that int8 holds exactly, a scale a channel."""
    weights = random.integers(-127, 128, (CHANNELS, CHANNELS, 3, 3))
    weights[:, 0] = 127
    return (weights / 4096.0).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> qglow.Model:
    """Convolutions one after the other, with Relu."""
    random = np.random.default_rng(0)
    b = GraphBuilder("chain")
    value = b.input("x", float_type(1, CHANNELS, SIZE, SIZE))
    for layer in range(LAYERS):
        weights = b.constant(f"w{layer}", exact_weights(random))
        value = b.node(Conv(pads=(1, 1, 1, 1), lo=0.0), value, weights, name=f"v{layer}")
    path = tmp_path_factory.mktemp("chain") / "chain.onnx"
    onnx.save(export_float(b.finish(value)), path)
    return qglow.load_model(path)


DATA = {"x": np.random.default_rng(1).normal(size=(12, CHANNELS, SIZE, SIZE)).astype(np.float32)}


@pytest.fixture(scope="module")
def profile(model: qglow.Model) -> qglow.Profile:
    return model.profile(DATA)


def tuned(model: qglow.Model, profile: qglow.Profile, goal: qglow.Goal, **options: object) -> qglow.Tuning:
    return qglow.tune(
        model, profile, DATA, goal, calibration_data=DATA, isa=ISA, threads=1, **options  # type: ignore[arg-type]
    )  # fmt: skip


def test_int16_is_what_a_model_of_exact_weights_needs(
    model: qglow.Model, profile: qglow.Profile, tmp_path: Path
) -> None:
    state, saved = tmp_path / "state.json", tmp_path / "tuned.yaml"
    found = tuned(model, profile, GOAL, state=state)
    best = found.require()
    assert found.trials[0].figures.sqnr_db < 45.0
    assert best.int16 and not best.keep_float
    found.save_recipe(saved)
    assert f"0 more nodes in float, {len(best.int16)} in int16" in saved.read_text()
    recipe = qglow.load_recipe(saved)
    assert recipe == found.recipe and recipe.rules[-1].dtype == "int16"
    made = model.quantize(profile, recipe, repair=False)
    assert qglow.compare(made, DATA).pairings[0].overall.sqnr_db >= 50.0
    assert any("i16" in node.result for node in made.report.quantized)  # type: ignore[union-attr]
    before = json.loads(state.read_text())
    again = tuned(model, profile, GOAL, state=state)
    assert again.trials == found.trials and json.loads(state.read_text()) == before


def test_a_recipe_that_wants_all_quantized_gets_int16_alone(
    model: qglow.Model, profile: qglow.Profile
) -> None:
    recipe = qglow.Recipe(assert_all_quantized=True)
    found = tuned(model, profile, qglow.Goal(min_sqnr_db=1000.0), recipe=recipe)
    assert found.best is None and len(found.trials) > 1
    assert not any(trial.keep_float for trial in found.trials)
    last = found.trials[-1]
    assert len(last.int16) == LAYERS and last.figures.sqnr_db > 60.0
