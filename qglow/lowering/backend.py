"""Description of a target for the lowering: the operators that it wants whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # programs are loaded without graphs
    from qglow.graph.operator import Operator


@dataclass(frozen=True)
class Backend:
    """A target of lowering.

    `keeps` names operators that have a decomposition but that the target implements itself; the
    lowering then leaves them whole and emits the target's instruction. joins: whether several operators
    become one instruction, such as those of attention.
    """

    name: str
    keeps: frozenset[type[Operator]] = frozenset()
    joins: bool = True

    def wants_whole(self, operator: Operator) -> bool:
        """Whether the target implements `operator` itself, so that it is not decomposed."""
        return type(operator) in self.keeps


ANY = Backend("any")
"""Keeps no operator whole: every target can run such programs, so artefacts store this form."""
