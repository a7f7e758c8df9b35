"""Examples in docstrings of the public API do what they show."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = (
    "qglow.cli.options",
    "qglow.metrics.boxes",
    "qglow.metrics.classification",
    "qglow.metrics.detection",
    "qglow.metrics.heads",
    "qglow.metrics.images",
    "qglow.metrics.language",
    "qglow.metrics.sequences",
    "qglow.recipe.choices",
    "qglow.recipe.data",
    "qglow.recipe.rules",
    "qglow.recipe.schema",
    "qglow.tuning.search",
)
"""Modules with examples. A module whose last example goes must leave the list."""


@pytest.mark.parametrize("name", MODULES)
def test_examples_do_what_they_show(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.attempted, f"{name} has no examples"
    assert not result.failed, f"{result.failed} of {result.attempted} examples fail; see the output above"
