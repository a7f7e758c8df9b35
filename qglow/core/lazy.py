"""Names of a package that import what they stand for when somebody asks for them (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package whose `__init__` imports nothing.

    modules: by name, the module of the package that defines it. A name is looked up once, then it is an
    attribute of the package. Other names raise AttributeError.
    """

    def lookup(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = getattr(importlib.import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return lookup
