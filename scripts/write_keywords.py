"""Writes qglow/recipe/keywords.py and qglow/api/keywords.py: options as typed keywords of functions.

python scripts/write_keywords.py
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

import qglow
from qglow.api import options
from qglow.core.keywords import keyword_type
from qglow.core.options import Declared, described, options_of
from qglow.recipe.schema import Recipe

_PACKAGE = Path(qglow.__file__).parent
_WRITTEN = "scripts/write_keywords.py writes this file."
_CHOICES = f'''"""The choices of a recipe as keywords of functions. {_WRITTEN}"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from qglow.recipe.choices import BlockFormat, Calibration


class RecipeChoices(TypedDict, total=False):
    """Choices of quantization that override a recipe's, each by its name; None leaves what the recipe has."""
'''
_OPTIONS = f'''"""The options of functions as typed keywords. {_WRITTEN}"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict

from qglow.recipe.keywords import RecipeChoices
'''
_QUANTIZE = '''

class QuantizeKeywords(Int8Keywords, RecipeChoices, total=False):
    """Options and choices of `Model.quantize`."""
'''


def recipe_module() -> str:
    """The text of the module of a recipe's choices."""
    chosen = (item for item in options_of(Recipe) if not item.option.only_in_files)
    return _CHOICES + "".join(_keyword(item, _or_none(keyword_type(item))) for item in chosen)


def options_module() -> str:
    """The text of the module of the functions' other options."""
    return _OPTIONS + "".join(map(_dictionary, _kinds())) + _QUANTIZE


def _kinds() -> Iterator[type]:
    for value in vars(options).values():
        if inspect.isclass(value) and value.__module__ == options.__name__:
            yield value


def _dictionary(kind: type) -> str:
    bases = [base.__name__.replace("Options", "Keywords") for base in kind.__bases__ if base is not object]
    name = kind.__name__.replace("Options", "Keywords")
    own = (item for item in options_of(kind) if item.name in vars(kind).get("__annotations__", {}))
    head = f'\n\nclass {name}({", ".join(bases or ["TypedDict"])}, total=False):\n    """{kind.__doc__}"""\n'
    return head + "".join(_keyword(item, keyword_type(item), _default(item)) for item in own)


def _default(item: Declared) -> str:
    return "" if item.default is None else f"Default: {item.default!r}."


def _or_none(kind: str) -> str:
    return kind if "None" in kind else f"{kind} | None"


def _keyword(item: Declared, kind: str, end: str = "") -> str:
    parts: Iterable[str] = (f"{described(item.option)}.", item.option.more, end)
    text = f'"""{" ".join(filter(None, parts))}"""'
    lines = textwrap.wrap(text, 110, initial_indent="    ", subsequent_indent="    ")
    return f"\n    {item.name}: {kind}\n" + "\n".join(lines) + "\n"


MODULES = {
    _PACKAGE / "recipe" / "keywords.py": recipe_module,
    _PACKAGE / "api" / "keywords.py": options_module,
}
"""The files with the functions that make their text."""

if __name__ == "__main__":
    for path, text in MODULES.items():
        path.write_text(text(), encoding="utf-8")
        print(path)
