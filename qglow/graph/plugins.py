"""Operators from other packages.

A package declares an entry point of the group `qglow.operators`, whose value is a module, or a function
without arguments. Importing the module, or calling the function, registers its operators: the class with
`qglow.graph.operator.register`, its forms in ONNX with `qglow.importer.rules.imports` and
`qglow.exporter.operators.exports`, and its decomposition with `qglow.lowering.decompose.decomposes`.
"""

from __future__ import annotations

import functools
import importlib.metadata

from qglow.core.errors import UsageError
from qglow.graph.operator import OPERATORS, Operator

GROUP = "qglow.operators"


@functools.cache
def load_operator_plugins() -> tuple[str, ...]:
    """Register the operators of all installed plugins, once in a process; returns the plugins' names.

    Called only where an operator is unknown, so that models without plugins do not pay for loading them.
    Raises UsageError for a plugin that cannot be loaded.
    """
    found = sorted(importlib.metadata.entry_points(group=GROUP), key=lambda entry: entry.name)
    for entry in found:
        try:
            loaded = entry.load()
            if callable(loaded):
                loaded()
        except Exception as error:
            what = f"plugin '{entry.name}' ({entry.value}) cannot be loaded: {error}"
            raise UsageError(f"{what}; repair or uninstall the package that brings it") from error
    return tuple(entry.name for entry in found)


def find_operator(name: str) -> type[Operator] | None:
    """The operator of this name, also of a plugin; None if there is none. Raises UsageError."""
    if name not in OPERATORS:
        load_operator_plugins()
    return OPERATORS.get(name)
