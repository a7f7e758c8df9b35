"""Check of an int8 graph that takes its states again: what it loses after many calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qglow.core.types import Array
from qglow.report.output_errors import OutputErrorCounter, StreamErrors
from qglow.report.runner import Runner
from qglow.report.score_axes import ScoreAxis

CALLS = 64
"""Calls of the stream at least; where there are fewer inputs, they come again."""


def stream_errors(
    float_program: Runner,
    int8_program: Runner,
    inputs: Sequence[Mapping[str, Array]],
    states: Mapping[str, str],
    scores: Mapping[str, ScoreAxis] | None = None,
    steps: Mapping[str, float] | None = None,
) -> StreamErrors:
    """Run two programs over a stream of inputs, each with its own states, and measure the other outputs.

    inputs: those of each call, one at least; the states of the first begin the stream. states: pairs of an
    input and the output that the next call reads there. Programs of states alone are measured by these.
    scores, steps: see `OutputErrorCounter`.
    """
    calls = max(CALLS, len(inputs))
    quarter = calls // 4
    first, last = OutputErrorCounter(scores, steps), OutputErrorCounter(scores, steps)
    ours = theirs = {name: inputs[0][name] for name in states}
    measured = [name for name in float_program(inputs[0]) if name not in states.values()]
    for call in range(calls):
        given = inputs[call % len(inputs)]
        found, expected = int8_program({**given, **ours}), float_program({**given, **theirs})
        counter = first if call < quarter else last
        if call < quarter or call >= calls - quarter:
            counter.add(found, {name: expected[name] for name in measured or expected})
        ours, theirs = _kept(found, states), _kept(expected, states)
    samples = quarter * len(next(iter(inputs[0].values())))
    return StreamErrors(calls, first.result(samples), last.result(samples))


def _kept(outputs: Mapping[str, Array], states: Mapping[str, str]) -> dict[str, Array]:
    """States for the next call, in memory of their own."""
    return {name: np.array(outputs[output]) for name, output in states.items()}
