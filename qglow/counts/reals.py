"""Constant integers that sizes change, of which programs for all sizes are given the reals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qglow.core.types import Array
from qglow.counts.twins import twins_of
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.rewriting import dequantized_constant
from qglow.numerics.quantize import dequantize_by


def dequantize_changing(graphs: Sequence[Graph]) -> None:
    """Let the results of Dequantize be constants, where sizes decide the integers.

    graphs: the same model in several sizes, all of which are changed alike. Rows of a table of positions that
    is stored in int8 are such integers.
    """
    for twins in twins_of(graphs):
        found = [reals for node in twins if (reals := _reals(node)) is not None]
        if len(found) == len(twins) and len({(reals.shape, reals.tobytes()) for reals in found}) > 1:
            for graph, node, reals in zip(graphs, twins, found, strict=True):
                graph.replace_value(node.output, Value(node.output.name, node.output.type, reals))
                graph.remove(node)


def _reals(node: Node) -> Array | None:
    """The result of a node that only dequantizes a constant; None for another node."""
    source = dequantized_constant(node.output) if len(node.outputs) == 1 else None
    if source is None or source.data is None or source.type.quantization is None:
        return None
    return np.asarray(dequantize_by(source.data, source.type.quantization), np.float32, order="C")
