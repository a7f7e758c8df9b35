"""qglow recipe show: a recipe as it takes effect."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qglow.api.options import MODEL
from qglow.cli.output import listing
from qglow.core.options import option
from qglow.recipe import load_recipe

EXAMPLES = ("qglow recipe show recipes/digits.yaml",)


@dataclass(frozen=True, kw_only=True)
class RecipeOptions:
    """The recipe to show."""

    recipe: Path = option(help="The recipe, a YAML file", argument=True, metavar="RECIPE", group=MODEL)


def show(which: RecipeOptions) -> None:
    """Print a recipe as it takes effect.

    Checks the file and prints every value, defaults included, as a recipe again.
    """
    listing(load_recipe(which.recipe).to_yaml())
