"""Beginnings of the quantization of one graph, kept for recipes that differ only in what comes later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from qglow.core.passes import LogEntry
from qglow.graph.graph import Graph
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.corrections import Correction
from qglow.quantization.known_factors import KnownFactors
from qglow.recipe.choices import Calibration
from qglow.recipe.schema import Recipe


@dataclass(frozen=True)
class Preparation:
    """A graph with its channels scaled, with its statistics, and reasons why nodes stay float, by name.

    stated: rules in words that overrule reasons, by node. entries: the log of what was done. corrections:
    what was done to lose less.
    """

    graph: Graph
    statistics: dict[str, ValueProfile]
    reasons: dict[str, str]
    stated: Mapping[str, str]
    entries: list[LogEntry]
    corrections: tuple[Correction, ...]


Preparations = dict[str, Preparation]
"""What quantizing one graph begins with, by `preparation_key` of the recipe."""
FactorsOfRecipes = dict[str, KnownFactors]
"""Factors of channels by `preparation_key` of the recipe."""


def preparation_key(recipe: Recipe) -> str:
    """The recipe in words without its calibration, which is used only later."""
    return repr(replace(recipe, calibration=Calibration()))
