"""Precisions beside int8: which nodes of a model have them, and the recipe that says so."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass

from qglow.recipe.matching import exactly
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe


class Precision(enum.IntEnum):
    """Precision that a node computes in, the least exact first."""

    INT8 = 0
    INT16 = 1
    FLOAT = 2


@dataclass(frozen=True, slots=True)
class Mix:
    """Names of nodes that become float, and of those whose results become int16; no name is in both."""

    keep_float: tuple[str, ...] = ()
    int16: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.keep_float or self.int16)

    def __str__(self) -> str:
        return f"{len(self.keep_float)} more nodes in float, {len(self.int16)} in int16"

    def by_type(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Each element type as rules name it, with its nodes."""
        return ("float", self.keep_float), ("int16", self.int16)

    @staticmethod
    def joined(mixes: Iterable[Mix]) -> Mix:
        """Join mixes; a node that is float in one and int16 in another is float."""
        parts = list(mixes)
        kept = dict.fromkeys(name for part in parts for name in part.keep_float)
        wide = dict.fromkeys(name for part in parts for name in part.int16)
        return Mix(tuple(kept), tuple(name for name in wide if name not in kept))


def with_mix(recipe: Recipe, mix: Mix) -> Recipe:
    """Return the recipe with these nodes in float and in int16 in addition, whatever its own rules say."""
    patterns = (exactly(name) for name in mix.keep_float)
    rules = recipe.rules
    if mix.int16:
        rules = (*rules, Rule(Match(name="|".join(re.escape(name) for name in mix.int16)), dtype="int16"))
    return recipe.with_overrides(keep_float=tuple(patterns), rules=rules)
