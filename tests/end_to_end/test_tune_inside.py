"""Mixed precision inside of a loop: the search reaches it, and its report names the node."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import qglow
from qglow.display.document import Document
from qglow.display.terminal import to_text
from qglow.recipe.schema import Recipe
from tests.unit.importer.test_structured import BOOL, FLOAT, INT64, START, body
from tests.unit.importer.tiny import save, tiny_model

RANDOM = np.random.default_rng(3)
WIDTH = 24
DATA = [
    {"x": RANDOM.uniform(0.0, 1.0, (1, WIDTH)).astype(np.float32), "rounds": np.array([[rounds]], np.int64)}
    for rounds in (1, 2, 3, 3, 4, 4, 2, 3)
]
ROW = (FLOAT, [1, WIDTH])
node = helper.make_node


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> qglow.Model:
    """A model whose loop, of as many rounds as an input says, takes a small difference of large values."""
    cell = body(
        [
            node("Add", ["s", "far"], ["far_off"], name="far"),
            node("Relu", ["far_off"], ["large"], name="large"),
            node("Sub", ["large", "far"], ["p"], name="back"),
            node("MatMul", ["p", "v"], ["next"], name="product"),
        ],
        {**START, "s": ROW},
        {"go": (BOOL, []), "next": ROW},
    )
    nodes = [
        node("ReduceSum", ["rounds"], ["count"], keepdims=0),
        node("Loop", ["count", "", "x"], ["y"], name="cell", body=cell),
    ]
    constants = {"v": 0.9 * np.eye(WIDTH, dtype=np.float32), "far": np.full((1, WIDTH), 60.0, np.float32)}
    found = tiny_model(nodes, {"x": [1, WIDTH]}, ["y"], constants, opset=16)
    found.graph.input.append(helper.make_tensor_value_info("rounds", INT64, [1, 1]))
    return qglow.load_model(save(found, tmp_path_factory.mktemp("inside")))


def test_tune_makes_the_value_in_the_loop_wide(model: qglow.Model) -> None:
    profile = model.profile(DATA)
    found = qglow.tune(
        model, profile, DATA, qglow.Goal(min_sqnr_db=30.0), calibration_data=DATA, effort="fast"
    )
    plain, best = found.trials[0], found.require()
    assert plain.figures.sqnr_db < 15.0 and best.figures.sqnr_db > 30.0
    names = {*best.mix.int16, *best.mix.keep_float}
    assert len(names) == 1 and all(name.startswith("cell.body/") for name in names)
    (name,) = names
    assert name in to_text(Document("", found._sections()))
    quantized = model.quantize(profile, found.recipe, repair=False)
    again = qglow.compare(quantized, DATA).pairings[0].overall.sqnr_db
    assert again == pytest.approx(best.figures.sqnr_db, abs=0.1)


def test_the_diagnosis_and_what_it_tries_reach_into_the_loop(model: qglow.Model) -> None:
    profile = model.profile(DATA)
    quantized = model.quantize(profile, Recipe(), repair=False)
    layers = qglow.compare_layers(quantized, DATA)
    found = qglow.diagnose(quantized, DATA, profile=profile, layers=layers)
    worst = found.ranked()[0]
    assert worst.node.startswith("cell.body/") and found.share(worst) > 0.9 and worst.isolated_db is not None
    best = found.suggestions()[0]
    assert best.where.startswith("cell.body/") and best.gain_db > 20.0
    assert worst.node in to_text(Document("", found._sections()))
