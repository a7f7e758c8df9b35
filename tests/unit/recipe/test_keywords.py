"""Choices of a recipe as keywords: the module with their types is current, and wrong ones are refused."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, get_type_hints

import pytest

from qglow.core.errors import UsageError
from qglow.core.options import options_of
from qglow.recipe import Calibration, Recipe, Rule
from qglow.recipe.keywords import RecipeChoices


def test_every_choice_but_those_of_files_is_a_keyword() -> None:
    wanted = {item.name for item in options_of(Recipe) if not item.option.only_in_files}
    assert set(get_type_hints(RecipeChoices)) == wanted


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ({"calibration": "kl"}, {"calibration": Calibration("kl")}),
        ({"calibration": Calibration("mse")}, {"calibration": Calibration("mse")}),
        ({"keep_float": "op:Gemm"}, {"keep_float": ("op:Gemm",)}),
        ({"keep_float": ()}, {}),
        ({"smooth": 1}, {"smooth": 1.0}),
        ({"smooth": "false"}, {"smooth": False}),
        ({"rounding_budget": "10m"}, {"rounding_budget": 600.0}),
        ({"rounding_budget": 90}, {"rounding_budget": 90.0}),
        ({"per_tensor": None, "strict": True}, {"strict": True}),
    ],
    ids=str,
)
def test_values_are_those_of_recipe_files(choices: dict[str, Any], expected: dict[str, Any]) -> None:
    assert Recipe().with_overrides(**choices) == Recipe(**expected)


@pytest.mark.parametrize(
    ("choices", "field"),
    [
        ({"schema": "asym"}, "schema"),
        ({"per_tensor": "yes"}, "per_tensor"),
        ({"split_channels": 2}, "split_channels"),
        ({"group_size": -1}, "group_size"),
        ({"smooth": 1.5}, "smooth"),
        ({"smooth": "much"}, "smooth"),
        ({"rounding_budget": "soon"}, "rounding_budget"),
        ({"calibration": "percentile"}, "calibration"),
        ({"keep_float": ["re:("]}, "keep_float"),
    ],
    ids=str,
)
def test_a_wrong_value_is_an_error_of_its_field(choices: dict[str, Any], field: str) -> None:
    with pytest.raises(UsageError) as caught:
        Recipe().with_overrides(**choices)
    assert caught.value.field == field and str(caught.value).startswith(field)


def test_an_unknown_keyword_is_a_usage_error_and_a_type_error_with_the_nearest_name() -> None:
    for kind in (UsageError, TypeError):
        with pytest.raises(kind, match="'kep_float' .* did you mean 'keep_float'"):
            Recipe().with_overrides(kep_float=None)


def test_a_rule_needs_something_to_match() -> None:
    with pytest.raises(TypeError, match="match"):
        Rule(dtype="float")  # type: ignore[call-arg]


def test_declarations_are_read_without_numpy_and_yaml() -> None:
    code = (
        "import sys\nimport qglow.recipe\nprint([name for name in ('numpy', 'yaml') if name in sys.modules])"
    )
    words = [sys.executable, "-c", code]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "[]\n"
