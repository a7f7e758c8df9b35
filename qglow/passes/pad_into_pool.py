"""A border around an image becomes the padding of the pool that reads it, where no result changes.

An average counts its padding as zeros or not at all, a maximum never chooses it. So an average takes in
zeros, and a maximum any number that no element of the image lies below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.graph.graph import Graph, Node
from qglow.graph.rewriting import Outcome, RewritePass
from qglow.passes.pad_into_conv import take_in_pad


@dataclass(frozen=True)
class PadIntoPool(RewritePass):
    """Let a pool read past a Pad around the image. Other readers of the Pad keep it."""

    name: ClassVar[str] = "pad-into-pool"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Fold the Pad before one pool."""
        return take_in_pad(node, graph) if node.operator.filters is None else None
