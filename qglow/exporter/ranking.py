"""Places and first elements as ONNX nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qglow.exporter.export import Export
from qglow.graph.operator import Operator
from qglow.graph.ops.ranking import ArgMax, ArgMin, FirstPlace, TopK, TopKIndices


def _place(op: FirstPlace, out: Export) -> None:
    last = int(op.last)
    out.emit(op.name, axis=op.axis, keepdims=int(op.keepdims), select_last_index=last)


def _top_k(op: TopK | TopKIndices, out: Export) -> None:
    """A TopK, of whose two outputs nobody reads the other."""
    inputs = [*out.inputs, out.integers("k", [op.k])]
    outputs = [out.output, out.builder.fresh(f"{out.output}__indices")]
    if isinstance(op, TopKIndices):
        outputs = [out.builder.fresh(f"{out.output}__values"), out.output]
    attributes = {"axis": op.axis, "largest": int(op.largest)}
    out.builder.node_of_several("TopK", out.node.name, inputs, outputs, **attributes)


EXPORTS: dict[type[Operator], Callable[[Any, Export], None]] = {
    ArgMax: _place,
    ArgMin: _place,
    TopK: _top_k,
    TopKIndices: _top_k,
}
