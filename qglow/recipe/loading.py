"""Reading a recipe file. A key that qglow does not know is an error, never ignored."""

from __future__ import annotations

from pathlib import Path

from qglow.core.errors import RecipeError
from qglow.recipe.schema import Recipe
from qglow.recipe.sections import section_of

_RECIPE = section_of(Recipe)


def load_recipe(path: str | Path) -> Recipe:
    """The recipe in a YAML file. Raises RecipeError that names the file and the key."""
    from qglow.recipe.documents import read_text

    try:
        text = read_text(Path(path))
    except ValueError as error:
        raise RecipeError(f"cannot read the recipe {path}: {error}") from error
    return parse_recipe(text, str(path))


def parse_recipe(text: str, where: str = "recipe") -> Recipe:
    """The recipe in YAML text; an empty one is all defaults. `where` is named in errors."""
    from qglow.recipe.documents import parse_document  # YAML is imported where a file is read

    try:
        document = parse_document(text)
        recipe = Recipe() if document is None else _RECIPE.build(document, "")
    except ValueError as error:
        raise RecipeError(f"{where}: {error}") from error
    assert isinstance(recipe, Recipe)
    return recipe
