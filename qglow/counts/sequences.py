"""Recurrent layers over steps and sequences whose number sizes decide."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qglow.counts.twins import twins_of
from qglow.graph.graph import Graph
from qglow.graph.rewriting import new_constant, operand


def end_sequences(graphs: Sequence[Graph]) -> None:
    """Let the sequences of a layer end at the last step, where sizes decide how many steps or sequences are.

    graphs: the same model in several sizes, all of which are changed alike. A sequence that has ended keeps
    its state: so steps behind the live ones change nothing, and one that is read backwards begins with the
    last live one. Sequences that are not live end before they begin, which takes no time.
    """
    for twins in twins_of(graphs):
        if twins[0].operator.recurs is None or twins[0].operand("lengths") is not None:
            continue
        if len({operand(node).type.shape[:2] for node in twins}) < 2:
            continue
        place = twins[0].operator.place_of("lengths")
        for graph, node in zip(graphs, twins, strict=True):
            steps, sequences, _ = operand(node).type.shape
            ends = new_constant(graph, f"{node.name}__lengths", np.full(sequences, steps, np.int32))
            missing = place - len(node.inputs)
            node.inputs = (*node.inputs[:place], *(None for _ in range(missing)), ends)
