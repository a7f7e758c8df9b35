"""Writes qglow/recipe/keywords.py: the choices of a recipe as typed keywords, from their declarations.

python scripts/write_keywords.py
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from qglow.core.options import Declared, described, options_of
from qglow.recipe.schema import Recipe

PLACE = Path(__file__).parents[1] / "qglow" / "recipe" / "keywords.py"
_HEAD = '''"""The choices of a recipe as keywords of functions. scripts/write_keywords.py writes this file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from qglow.recipe.choices import Calibration


class RecipeChoices(TypedDict, total=False):
    """Choices of quantization that override a recipe's, each by its name; None leaves what the recipe has."""
'''


def keywords_module() -> str:
    """The text of the module."""
    fields = (item for item in options_of(Recipe) if not item.option.only_in_files)
    return _HEAD + "".join(map(_keyword, fields))


def _keyword(item: Declared) -> str:
    kind = item.option.keyword or str(item.field.type)
    if "None" not in kind:
        kind += " | None"
    text = f'"""{described(item.option)}. {item.option.more}'.rstrip() + '"""'
    lines = textwrap.wrap(text, 110, initial_indent="    ", subsequent_indent="    ")
    return f"\n    {item.name}: {kind}\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PLACE.write_text(keywords_module(), encoding="utf-8")
    print(PLACE)
