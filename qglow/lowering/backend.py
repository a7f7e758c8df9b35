"""What a back end tells the lowering: which operators it wants whole."""

from __future__ import annotations

from dataclasses import dataclass

from qglow.graph.operator import Operator


@dataclass(frozen=True)
class Backend:
    """A target of lowering.

    `keeps` names operators that have a decomposition but that the back end implements
    itself; the lowering then leaves them whole and emits the back end's instruction.
    """

    name: str
    keeps: frozenset[type[Operator]] = frozenset()

    def wants_whole(self, operator: Operator) -> bool:
        """Whether `operator` reaches the back end as it is."""
        return type(operator) in self.keeps


REFERENCE = Backend("reference")
CPU = Backend("cpu")
