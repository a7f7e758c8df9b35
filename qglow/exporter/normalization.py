"""Normalizations as ONNX nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qglow.exporter.export import Export
from qglow.graph.operator import Operator
from qglow.graph.ops.normalization import LRN, InstanceNormalization, LayerNormalization


def _lrn(op: LRN, out: Export) -> None:
    out.emit("LRN", size=op.size, alpha=op.alpha, beta=op.beta, bias=op.bias)


EXPORTS: dict[type[Operator], Callable[[Any, Export], None]] = {
    InstanceNormalization: lambda op, out: out.emit("InstanceNormalization", epsilon=op.epsilon),
    LRN: _lrn,
    LayerNormalization: lambda op, out: out.emit("LayerNormalization", axis=op.axis, epsilon=op.epsilon),
}
