"""The file from which a search goes on."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from qglow.core.errors import InputFileError
from qglow.recipe.choices import Calibration
from qglow.recipe.data import Preprocessing
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe
from qglow.tuning.mix import Mix
from qglow.tuning.order import Promotion
from qglow.tuning.search import Figures
from qglow.tuning.state import State, load_state, save_state

ABOUT = {"model": "ab" * 32, "data": "cd" * 32}


MIX = {"keep_float": ["a"], "int16": []}


def whole() -> State:
    rule = Rule(Match(name="a|b"), calibration=Calibration.parse("percentile:99.9"))
    recipe = Recipe(Preprocessing(resize=256, scale=1 / 255), keep_float=("re:x.*",), rules=(rule,))
    steps = [
        Promotion(Mix(("a", "b")), 0.25, 1000.0),
        Promotion(Mix(("c",), ("d", "é"), ("f",), ("g",)), 1e-9, -4.0),
    ]
    figures = {
        0: Figures("top-1", 80.0, 90.0, 20.0, 1.0, 1000, drop_error=0.75),
        3: Figures("psnr", math.inf, None, math.inf, 1.5, 2000),
    }
    return State(ABOUT, recipe, steps, figures)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    save_state(path, whole())
    assert load_state(path, ABOUT) == whole()


def test_a_file_from_before_16_bit_floats_is_read(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    save_state(path, State(ABOUT, Recipe(), [Promotion(Mix(("a",)), 0.25, 1.0)], {0: whole().figures[3]}))
    document = json.loads(path.read_text())
    for field in ("float16", "bfloat16"):
        del document["steps"][0]["mix"][field]
    del document["figures"]["0"]["drop_error"]
    path.write_text(json.dumps(document))
    assert load_state(path, ABOUT).steps == [Promotion(Mix(("a",)), 0.25, 1.0)]


def test_a_state_without_anything_found_keeps_nobody_from_another_search(tmp_path: Path) -> None:
    path, other = tmp_path / "state.json", ABOUT | {"effort": "much"}
    save_state(path, State(other))
    assert load_state(path, ABOUT) == State(ABOUT)


def test_no_file_is_a_new_search(tmp_path: Path) -> None:
    assert load_state(tmp_path / "none.json", ABOUT) == State(ABOUT)
    assert not list(tmp_path.iterdir())


def test_a_state_of_something_else_is_refused_by_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    save_state(path, whole())
    with pytest.raises(InputFileError, match=r"another data.*`state`"):
        load_state(path, ABOUT | {"data": "ef" * 32})
    with pytest.raises(InputFileError, match="another instruction set"):
        load_state(path, ABOUT | {"instruction set": "avx2"})


def changed(**values: Any) -> str:
    document = {"format": "qglow tuning", "version": 2, "about": ABOUT, "recipe": None, "steps": None}
    return json.dumps(document | {"figures": {}} | values)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '{"format": "qglow tuning"}',
        changed(format="another"),
        changed(version=1),
        changed(about=[]),
        changed(recipe=3),
        changed(steps=[{"mix": MIX}]),
        changed(steps=[{"mix": {"keep_float": ["a"]}, "noise": 1, "cycles": 1}]),
        changed(steps=[{"mix": MIX, "noise": "much", "cycles": 1}]),
        changed(figures={"many": {}}),
        changed(figures={"0": {"accuracy": 1}}),
        changed(figures=[1]),
    ],
)
def test_anything_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(text)
    with pytest.raises(InputFileError, match=r"not a state of qglow tune.*remove it"):
        load_state(path, ABOUT)


def test_a_damaged_recipe_in_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text(changed(recipe="schemer: symmetric"))
    with pytest.raises(InputFileError, match=r"state\.json"):
        load_state(path, ABOUT)
