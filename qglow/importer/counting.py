"""Rounds of a loop whose condition is computed from counters alone, as exporters write them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qglow.core.types import Array
from qglow.graph.cutting import cut
from qglow.graph.graph import Graph, Value
from qglow.graph.interpreter import Interpreter

MOST_ROUNDS = 20_000
"""Rounds that are counted; a loop of more keeps its condition."""
_LARGEST = 64
"""Elements of a value that may count."""


def provable_rounds(body: Graph, starts: Sequence[Value], most: int | None) -> int | None:
    """The rounds of a loop whose `body` gives first whether it goes on; None where data decides.

    starts: what is carried into the first round, for the inputs of the body behind the number of the round.
    most: the most rounds, None without such a limit.
    """
    counters = _counters(body, starts)
    if counters is None or body.outputs[0].is_constant:
        return None
    results = [body.outputs[0], *(body.outputs[1 + index] for index in counters)]
    part = cut(body, list(dict.fromkeys(value.name for value in results)), ())
    number, wanted = body.inputs[0].name, {value.name for value in part.inputs}
    interpreter = Interpreter(part)
    state: dict[str, Array | None] = {body.inputs[1 + index].name: starts[index].data for index in counters}
    for count in range(MOST_ROUNDS if most is None else min(most, MOST_ROUNDS)):
        given = {name: data for name, data in state.items() if name in wanted and data is not None}
        given |= {number: np.array(count, np.int64)} if number in wanted else {}
        found = interpreter.run(given)
        if not bool(found[results[0].name]):
            return count + 1
        state = {body.inputs[1 + i].name: found[body.outputs[1 + i].name] for i in counters}
    return most if most is not None and most <= MOST_ROUNDS else None


def _counters(body: Graph, starts: Sequence[Value]) -> list[int] | None:
    """Indices of the carried values that the condition is computed from; None where others decide, too."""
    places: dict[Value, int] = {value: number for number, value in enumerate(body.inputs)}
    found: dict[int, None] = {}
    waiting, seen = [body.outputs[0]], {body.outputs[0]}
    while waiting:
        value = waiting.pop()
        if value.is_constant:
            continue
        if value.producer is not None:
            if value.producer.operator.region_names or value.type.size > _LARGEST:
                return None
            new = {each for each in value.producer.inputs if each is not None} - seen
        else:
            index = places[value] - 1
            if index < 0:
                continue
            if index >= len(starts) or starts[index].data is None or value.type.size > _LARGEST:
                return None
            found[index] = None
            new = {body.outputs[1 + index]} - seen
        seen |= new
        waiting += new
    return list(found)
