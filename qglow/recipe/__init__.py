"""The recipe file: how data becomes model inputs, and how the model is quantized."""

from qglow.recipe.choices import Calibration
from qglow.recipe.data import DataMapping, Preprocessing
from qglow.recipe.loading import load_recipe, parse_recipe
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe

__all__ = [
    "Calibration",
    "DataMapping",
    "Match",
    "Preprocessing",
    "Recipe",
    "Rule",
    "load_recipe",
    "parse_recipe",
]
