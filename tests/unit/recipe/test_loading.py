"""Recipe files: what they may say, and what is said about mistakes in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qglow.core.errors import RecipeError, UsageError
from qglow.recipe import (
    Calibration,
    DataMapping,
    Match,
    Preprocessing,
    Recipe,
    Rule,
    load_recipe,
    parse_recipe,
)

REPOSITORY = Path(__file__).parents[3]

FULL = """
preprocessing:
  resize: 256
  interpolation: bicubic
  crop: [224, 200]
  layout: NHWC
  channels: BGR
  scale: 1/255
  mean: [0.485, 0.456, 0.406]
  std: 2
data:
  inputs: {"758": x_calib}
  label: y
schema: symmetric_with_uint8
calibration: percentile:99.99
per_tensor: true
keep_float: [logits, "re:block.*", "op:Softmax"]
assert_all_quantized: true
equalize: false
smooth: 0.25
profile_again: true
correct_bias: false
io: int8
"""


def test_every_key_is_read() -> None:
    recipe = parse_recipe(FULL)
    assert recipe == Recipe(
        Preprocessing(
            resize=256,
            interpolation="bicubic",
            crop=(224, 200),
            layout="NHWC",
            channels="BGR",
            scale=1 / 255,
            mean=(0.485, 0.456, 0.406),
            std=(2.0,),
        ),
        DataMapping({"758": "x_calib"}, "y"),
        "symmetric_with_uint8",
        Calibration("percentile", 99.99),
        True,
        ("logits", "re:block.*", "op:Softmax"),
        True,
        False,
        False,
        "int8",
        smooth=0.25,
        profile_again=True,
    )


@pytest.mark.parametrize("text", ["", FULL, "preprocessing: {resize: [3, 4], crop: 2}", "calibration: kl"])
def test_yaml_round_trip(text: str) -> None:
    recipe = parse_recipe(text)
    assert parse_recipe(recipe.to_yaml()) == recipe


@given(st.floats(-1e6, 1e6, allow_subnormal=False), st.sampled_from([1e-30, 1 / 3, 7.0]))
def test_floats_survive_the_round_trip(mean: float, std: float) -> None:
    recipe = Recipe(Preprocessing(mean=(mean,), std=(std,)))
    assert parse_recipe(recipe.to_yaml()) == recipe


def test_single_crop_size_is_a_square() -> None:
    recipe = parse_recipe("preprocessing: {crop: 224}")
    assert recipe.preprocessing is not None and recipe.preprocessing.crop == (224, 224)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("preprocessing: {chanels: RGB}", "'preprocessing.chanels'; did you mean 'preprocessing.channels'?"),
        ("calibraton: kl", "unknown key 'calibraton'; did you mean 'calibration'?"),
        ("zzz: 1", "unknown key 'zzz'; valid are preprocessing, data, schema"),
        ("schema: asymetric", "schema 'asymetric' is not one of asymmetric, symmetric, "),
        ("calibration: percentile", "write percentile:P"),
        ("calibration: percentile:20", "P above 50"),
        ("calibration: kl:3", "takes no argument"),
        ("calibration: minmax:0.5", "F from 1 to 4"),
        ("calibration: minmax:wide", "write minmax:F"),
        ("per_tensor: 1", "per_tensor: needs true or false, found 1"),
        ("preprocessing: {scale: 1/0}", "preprocessing.scale: needs a number or a fraction"),
        ("preprocessing: {std: [1, 0, 1]}", "preprocessing: std divides"),
        ("preprocessing: {mean: [1, 2]}", "preprocessing: mean has 2 values"),
        ("preprocessing: {resize: [1, 2, 3]}", "preprocessing.resize: needs one size or [height, width]"),
        ("preprocessing: {crop: 0}", "at least 1"),
        ("preprocessing: {letterbox: 8, crop: 4}", "letterbox takes the place of resize and crop"),
        ("preprocessing: 5", "preprocessing holds keys and values, found 5"),
        ("keep_float: logits", "keep_float: needs a list of names"),
        ('keep_float: ["re:("]', "not a regular expression"),
        ("keep_float: [758]", "put it in quotes"),
        ("schema: a\nschema: b", "'schema' twice, line 2"),
        ("a: [", "not a YAML file"),
        ("a: !!timestamp 99999-99-99", "a value is not what its tag says"),
        ("a: !!int _", "not what its tag says"),
        ("{[1]: 2}", "unhashable key, line 1"),
        ("[" * 5000, "nested too deeply"),
        ("samples: " + "9" * 5000, "not a file of qglow"),
    ],
)
def test_mistakes_are_named_with_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert str(caught.value).count("\n") <= 1


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"absent\.yaml"):
        load_recipe(tmp_path / "absent.yaml")


def test_overrides_replace_only_what_is_given() -> None:
    recipe = Recipe(keep_float=("a",), per_tensor=True)
    changed = recipe.with_overrides(
        schema="symmetric", calibration="mse", per_tensor=None, keep_float=["b", "a"]
    )
    assert changed == Recipe(
        schema="symmetric", calibration=Calibration("mse"), per_tensor=True, keep_float=("a", "b")
    )
    assert recipe.with_overrides() == recipe


def test_a_wrong_override_is_the_callers_mistake() -> None:
    with pytest.raises(UsageError, match="did you mean 'symmetric'"):
        Recipe().with_overrides(schema="symetric")


def test_keep_float_patterns() -> None:
    recipe = Recipe(keep_float=("logits", "re:block[0-9]/.*", "op:Softmax"))
    assert recipe.keeps_float(["logits"], "Gemm") == "logits"
    assert recipe.keeps_float(["Conv_1", "block1/conv"], "Conv") == "re:block[0-9]/.*"
    assert recipe.keeps_float(["prob"], "Softmax") == "op:Softmax"
    assert recipe.keeps_float(["Conv_1", "xblock1/conv"], "Conv") is None


@pytest.mark.parametrize("path", sorted((REPOSITORY / "recipes").glob("*.yaml")), ids=lambda p: p.stem)
def test_shipped_recipes_load(path: Path) -> None:
    load_recipe(path)


RULES = """
rules:
- match: {name: "block.*"}
  keep_float: true
- match: {operator: Conv, from: x, to: y}
  dtype: int8
  schema: symmetric
  calibration: percentile:99
  granularity: tensor
"""


def test_rules_are_read_in_order_and_survive_the_round_trip() -> None:
    recipe = parse_recipe(RULES)
    assert recipe.rules == (
        Rule(Match(name="block.*"), dtype="float"),
        Rule(
            Match(operator="Conv", start="x", end="y"),
            "int8",
            "symmetric",
            Calibration("percentile", 99.0),
            "tensor",
        ),
    )
    assert parse_recipe(recipe.to_yaml()) == recipe


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("{match: {nam: a}, dtype: float}", "'rules 1.match.nam'; did you mean 'rules 1.match.name'?"),
        (
            "{match: {name: a}, dtype: flot}",
            "rules 1: dtype 'flot' is not one of int8, int16, float, float16, bfloat16, dynamic; did you",
        ),
        ("{match: {name: a}, granularity: row}", "granularity 'row' is not one of channel, tensor"),
        (
            "{match: {role: score}, dtype: float}",
            "rules 1.match: role 'score' is not one of sum, norm, softmax",
        ),
        ("{match: {}, dtype: float}", "rules 1.match: name, operator, role, from or to has to say"),
        ("{match: {name: '('}, dtype: float}", "rules 1.match: name '(': not a regular expression"),
        ("{match: {name: a}, dtype: int8, keep_float: true}", "keep_float: true contradicts dtype: int8"),
        ("{dtype: int8}", "rules 1: match has to say what the rule is about"),
        ("{match: {name: a}}", "rules 1: it sets nothing"),
        ("{match: {name: a}, equalize: 1}", "rules 1.equalize: needs true or false"),
    ],
)
def test_mistakes_in_rules_name_the_rule(rule: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parse_recipe(f"rules: [{rule}]")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "seconds"), [("10m", 600.0), ("90", 90.0), ("1.5h", 5400.0), ("null", None)]
)
def test_a_budget_is_a_time_or_seconds(text: str, seconds: float | None) -> None:
    recipe = parse_recipe(f"rounding_budget: {text}")
    assert recipe.rounding_budget == seconds
    assert parse_recipe(recipe.to_yaml()) == recipe


@pytest.mark.parametrize("text", ["10d", "-1", "soon"])
def test_a_budget_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(RecipeError, match="rounding_budget"):
        parse_recipe(f"rounding_budget: {text}")
