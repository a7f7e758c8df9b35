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
    """Names of nodes that become float, of those whose results become int16, and of those in 16-bit floats.

    No name is in two of them.
    """

    keep_float: tuple[str, ...] = ()
    int16: tuple[str, ...] = ()
    float16: tuple[str, ...] = ()
    bfloat16: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(names for _, names in self.by_type())

    def __str__(self) -> str:
        halves = ((name, names) for name, names in self.by_type()[2:] if names)
        further = "".join(f", {len(names)} in {name}" for name, names in halves)
        return f"{len(self.keep_float)} more nodes in float, {len(self.int16)} in int16{further}"

    def by_type(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Each element type as rules name it, with its nodes."""
        return (
            ("float", self.keep_float),
            ("int16", self.int16),
            ("float16", self.float16),
            ("bfloat16", self.bfloat16),
        )

    @staticmethod
    def joined(mixes: Iterable[Mix]) -> Mix:
        """Join mixes; a node that is float in one and int16 in another is float, of whatever width."""
        parts = list(mixes)
        fields = ("keep_float", "float16", "bfloat16", "int16")  # of a name in several, the first has it
        owner: dict[str, str] = {}
        for field in fields:
            for part in parts:
                for name in getattr(part, field):
                    owner.setdefault(name, field)
        order = {
            field: dict.fromkeys(name for part in parts for name in getattr(part, field)) for field in fields
        }
        return Mix(**{f: tuple(name for name in order[f] if owner[name] == f) for f in fields})


def mix_rules(mix: Mix) -> list[Rule]:
    """Rules of a recipe for a mix."""
    return [
        Rule(Match(name="|".join(map(re.escape, names))), dtype=dtype)
        for dtype, names in mix.by_type()
        if names
    ]


def with_mix(recipe: Recipe, mix: Mix) -> Recipe:
    """Return the recipe with these nodes in other precisions in addition, whatever its own rules say."""
    patterns = (exactly(name) for name in mix.keep_float)
    added = (
        Rule(Match(name="|".join(re.escape(name) for name in names)), dtype=dtype)
        for dtype, names in mix.by_type()
        if names and dtype != "float"
    )
    rules = (*recipe.rules, *added)
    return recipe.with_overrides(keep_float=tuple(patterns), rules=rules)
