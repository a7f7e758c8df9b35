from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qglow.api.options import EffortOptions
from qglow.cli.inspect import STAGES as SHOWN_STAGES
from qglow.cli.options import parse_shapes, parse_values, read_recipe
from qglow.core.errors import QglowError, UsageError
from qglow.core.options import options_of
from qglow.report.stages import STAGES
from qglow.tuning.effort import EFFORTS, FAST


def test_shapes_by_input() -> None:
    assert parse_shapes(None) == {}
    assert parse_shapes(["input=1,3,224,224", "mask=1x5", "a=b:0=2"]) == {
        "input": (1, 3, 224, 224),
        "mask": (1, 5),
        "a=b:0": (2,),
    }
    assert parse_shapes(["scalar="]) == {"scalar": ()}


@pytest.mark.parametrize("text", ["1,3,224,224", "input", "=1,3", "input=1,,3", "input=a", "input=1.5"])
def test_malformed_shape_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="INPUT=1,3,224,224"):
        parse_shapes([text])


def test_shape_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="twice"):
        parse_shapes(["x=1", "x=2"])


def test_options_override_the_recipe(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("schema: symmetric\ncalibration: mse\nkeep_float: [a]\n")
    recipe = read_recipe(path, schema=None, calibration="kl", keep_float=["b"])
    assert (recipe.schema, str(recipe.calibration), recipe.keep_float) == ("symmetric", "kl", ("a", "b"))


def test_choices_that_help_names_are_those_of_the_library() -> None:
    effort = next(item for item in options_of(EffortOptions) if item.name == "effort")
    assert effort.option.choices == (FAST, *EFFORTS) and effort.default == FAST
    assert set(SHOWN_STAGES) == {*STAGES, "quantized"}


def test_values_by_input(tmp_path: Path) -> None:
    np.save(tmp_path / "big.npy", np.arange(6.0).reshape(2, 3))
    values = parse_values(["sizes=1,3", "a=b:0=0.5", "masked=true,false", "none=", f"big={tmp_path}/big.npy"])
    big = values.pop("big")
    assert values == {"sizes": [1, 3], "a=b:0": [0.5], "masked": [True, False], "none": []}
    np.testing.assert_array_equal(np.asarray(big), np.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["1,3"], "write INPUT="),
        (["x=1,a"], "'a' is no number"),
        (["x=1", "x=2"], "given twice"),
        (["x=missing.npy"], "cannot read missing.npy"),
    ],
)
def test_malformed_value_is_refused(texts: list[str], message: str) -> None:
    with pytest.raises(QglowError, match=message):
        parse_values(texts)
