"""Corrections that make a model lose less by int8, in groups of nodes that get them together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Correction:
    """One correction of one group of nodes, which a rule may leave out.

    kind: as in `recipe.rules.CORRECTIONS`. node: the name of a node; a rule for it leaves the whole group
    out. values: names of the values whose channels it changes. weights: names of the nodes with other weights
    or biases.
    """

    kind: str
    node: str
    values: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
