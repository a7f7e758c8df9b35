"""Bound on what nodes in int16 or float can win, told by one rehearsal before anything is quantized.

At best, what int8 nodes round for nodes that become wide is not rounded at all, and float nodes have their
own weights. A mix that wins too little even so need not be made.
"""

from __future__ import annotations

import math

from qglow.quantization.assign import needs_narrow
from qglow.tuning.mix import Mix
from qglow.tuning.needs import Place, readers
from qglow.tuning.rehearsal import rounded_values
from qglow.tuning.rehearsed_constants import Exchange
from qglow.tuning.stage import Stage


def most_level(stage: Stage, mix: Mix) -> float:
    """Level in dB over the runs to choose on that a stage could reach with a mix in addition, approximately.

    Returns inf for nodes of regions, which no rehearsal changes.
    """
    wide = {*mix.keep_float, *mix.int16}
    graph = stage.result.graph
    if not wide <= {node.name for node in graph.nodes}:
        return math.inf
    values = rounded_values(stage.result.source, graph)
    rounded = {name for name, value in values.items() if not _is_freed(Place.of(value), wide)}
    kept = {name: kind for name, kind in stage.parameters.items() if name in rounded}
    exact = Exchange(exact=frozenset(mix.keep_float))
    return stage.exchanged(exact, kept, stage.choosing).level


def _is_freed(place: Place, wide: set[str]) -> bool:
    """Whether some reader gets a value as exact as these nodes, which are wide, can make it.

    A reader that takes int8 alone gets it rounded, however exact it is, unless the reader is wide itself.
    """
    reading = [node for moved in place.moved for node in readers(moved)]
    if any(node.name in wide for node in reading):
        return True
    made_wide = any(node.name in wide for node in place.to_int16)
    return made_wide and (not reading or any(not needs_narrow(node) for node in reading))
