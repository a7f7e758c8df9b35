"""qglow recipe show: what a recipe says, defaults included."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qglow.api import load_recipe
from qglow.cli.output import say


def show(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="The recipe, a YAML file.")],
) -> None:
    """Print a recipe as it takes effect.

    Checks the file and prints every value, defaults included, as a recipe again.
    """
    say(load_recipe(recipe).to_yaml().rstrip("\n"))
