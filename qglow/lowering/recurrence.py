"""Recurrent layers: one instruction for all steps."""

from __future__ import annotations

import dataclasses

from qglow.graph.graph import Node
from qglow.graph.ops import recurrence as graph
from qglow.instructions.ops.recurrence import RecurrentLayer
from qglow.instructions.program import Buffer
from qglow.lowering.context import Lowering, natural
from qglow.lowering.rules import lowers
from qglow.numerics.recurrence import state_factors


@lowers(graph.Recurrence)
def lower_recurrence(lowering: Lowering, node: Node, operator: graph.Recurrence) -> None:
    """Lower to one recur, with factors of the sums where states are int8."""
    given, w, hidden, carried = (node.operand(name) for name in ("given", "w", "hidden", "carried"))
    assert given is not None and w is not None and hidden is not None and carried is not None
    sources: list[Buffer | None] = [
        lowering.read(given, natural(given.type.shape)),
        lowering.read(w, (0, 1)) if w.data is None else lowering.constant(w.name, w.data),
        *(lowering.read(value, natural(value.type.shape)) for value in (hidden, carried)),
    ]
    for name in ("bias", "peepholes", "lengths"):
        value = node.operand(name)
        sources.append(None if value is None else lowering.read(value))
    multiplier = None
    if hidden.type.quantization is not None and w.type.quantization is not None:
        factors = state_factors(hidden.type.quantization, w.type.quantization, w.type.shape[1])
        multiplier = lowering.constant(f"{node.name}.multiplier", factors)
    results = [lowering.write(value) for value in node.outputs]
    names = [field.name for field in dataclasses.fields(RecurrentLayer)]
    settings = {name: getattr(operator, name) for name in names}
    lowering.emit(RecurrentLayer(**settings), *results, *sources, multiplier)
