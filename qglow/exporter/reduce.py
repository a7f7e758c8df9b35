"""Reductions as ONNX nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qglow.exporter.export import Export
from qglow.graph.operator import Operator
from qglow.graph.ops.reduce import CumSum, ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum, Reduction


def _reduce(op: Reduction, out: Export) -> None:
    out.emit(op.name, out.integers("axes", op.axes), keepdims=int(op.keepdims))


def _running_sum(op: CumSum, out: Export) -> None:
    axis = out.integers("axis", [op.axis])
    out.emit(op.name, axis, exclusive=int(op.exclusive), reverse=int(op.reverse))


EXPORTS: dict[type[Operator], Callable[[Any, Export], None]] = {
    CumSum: _running_sum,
    ReduceMax: _reduce,
    ReduceMean: _reduce,
    ReduceMin: _reduce,
    ReduceProd: _reduce,
    ReduceSum: _reduce,
}
