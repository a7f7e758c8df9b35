"""Precisions beside int8: which nodes of a model have them, and the recipe that says so."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass

from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe


class Precision(enum.IntEnum):
    """What a node computes in, from the least exact on."""

    INT8 = 0
    INT16 = 1
    FLOAT = 2


@dataclass(frozen=True, slots=True)
class Mix:
    """Names of nodes that stay float, and of those whose results are int16; all others are as they were.

    No name is in both.
    """

    keep_float: tuple[str, ...] = ()
    int16: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.keep_float or self.int16)

    def __str__(self) -> str:
        return f"{len(self.keep_float)} more nodes in float, {len(self.int16)} in int16"

    @staticmethod
    def joined(mixes: Iterable[Mix]) -> Mix:
        """One after the other: what becomes float is int16 no more."""
        parts = list(mixes)
        kept = dict.fromkeys(name for part in parts for name in part.keep_float)
        wide = dict.fromkeys(name for part in parts for name in part.int16)
        return Mix(tuple(kept), tuple(name for name in wide if name not in kept))


def with_mix(recipe: Recipe, mix: Mix) -> Recipe:
    """The recipe with these nodes in float and in int16 besides, whatever its own rules say of them."""
    patterns = (
        f"re:{re.escape(name)}" if name.startswith(("re:", "op:")) else name for name in mix.keep_float
    )
    rules = recipe.rules
    if mix.int16:
        rules = (*rules, Rule(Match(name="|".join(re.escape(name) for name in mix.int16)), dtype="int16"))
    return recipe.with_overrides(keep_float=tuple(patterns), rules=rules)
