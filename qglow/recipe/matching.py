"""Names of nodes and values, as people write them in recipes and commands."""

from __future__ import annotations

import re

from qglow.core.printable import printable

_PREFIXES = ("re:", "op:")
"""Beginnings of patterns of `keep_float` that are no names."""


def means(written: str, name: str) -> bool:
    r"""Whether `written` is a name as it is, or as reports print it: with escapes for what does not show.

    >>> means("conv[0]", "conv[0]"), means(r"conv\x1b", "conv\x1b"), means("conv", "conv[0]")
    (True, True, False)
    """
    return written in (name, printable(name))


def fits(expression: str, name: str) -> bool:
    """Whether the whole of a name, or of what reports print for it, fits a regular expression.

    A dot stands for a line break too.
    """
    return any(re.fullmatch(expression, form, re.DOTALL) for form in {name, printable(name)})


def exactly(name: str) -> str:
    """Return a pattern of `keep_float` for the name alone.

    >>> exactly("conv[0]"), exactly("op:Gemm")
    ('conv[0]', 're:op:Gemm')
    """
    return f"re:{re.escape(name)}" if name.startswith(_PREFIXES) else name


def check_expression(expression: str, shown: str) -> None:
    """Raise ValueError, beginning with `shown`, for what is no regular expression."""
    try:
        re.compile(expression)
    except re.error as error:
        raise ValueError(
            f"{shown}: not a regular expression: {error}; a name with these characters is written "
            f"{re.escape(expression)}"
        ) from error
