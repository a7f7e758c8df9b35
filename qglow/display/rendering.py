"""Templates of reports: whatever comes from models and files is escaped."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import files

from qglow.core.printable import printable


@cache
def renderer(name: str) -> Callable[..., str]:
    """A function that fills in the template of this file name, given its variables by name."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # where something is drawn, not always

    environment = Environment(
        loader=FunctionLoader(lambda template: packaged("templates", template)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    environment.filters["kind"] = _kind
    render: Callable[..., str] = environment.get_template(name).render
    return render


def packaged(folder: str, name: str) -> str:
    """Text of a file that the package has beside its code."""
    return files("qglow.display").joinpath(folder, name).read_text(encoding="utf-8")


def _printable(value: object) -> object:
    """Text as people may see it; what is no text, and markup of other templates, as it is."""
    return printable(value, lines=True) if type(value) is str else value


def _kind(block: object) -> str:
    return type(block).__name__.lower()
