"""Names in LLVM's language, which come from models and must not become code."""

from __future__ import annotations

import re

_OTHER = re.compile(r"[^!#-\[\]-~]")  # all but printable ASCII without quotation marks and backslashes


def symbol(name: str) -> str:
    r"""A name that stands for itself in LLVM's text: what would end it, or the line, becomes "_".

    >>> print(symbol('layer1/add\n"'))
    layer1/add__
    """
    return _OTHER.sub("_", name)
