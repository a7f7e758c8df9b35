"""The recipe file: how data becomes model inputs, and how the model is quantized."""

from qglow.recipe.loading import load_recipe, parse_recipe
from qglow.recipe.schema import Calibration, DataMapping, Preprocessing, Recipe

__all__ = ["Calibration", "DataMapping", "Preprocessing", "Recipe", "load_recipe", "parse_recipe"]
