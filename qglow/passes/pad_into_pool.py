"""A border around an image becomes the padding of the pool that reads it, where no result changes.

An average counts its padding as zeros or not at all, a maximum never chooses it. So zeros go into an
AveragePool that counts them, and into a MaxPool whatever no element of the image lies below.
https://onnx.ai/onnx/operators/onnx__AveragePool.html, onnx__MaxPool.html
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.passes import Refused
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import OperatorTypeError
from qglow.graph.ops.elementwise import Clip, Relu, Sigmoid
from qglow.graph.ops.functions import Abs, Exp, HardSigmoid, Softplus, Sqrt
from qglow.graph.ops.pool import AveragePool, MaxPool
from qglow.graph.ops.shape import ChannelShuffle, Concat, Gather, Identity, Pad, Reshape, Slice, Transpose
from qglow.graph.ops.softmax import Softmax
from qglow.graph.rewriting import Outcome, RewritePass, change, operand, producer_of, remove_unread
from qglow.numerics.pool import window_counts
from qglow.passes.pad_into_conv import both_borders, image_border

_NOT_NEGATIVE = (Abs, Exp, HardSigmoid, Sigmoid, Softmax, Softplus, Sqrt)
_CHOICES = (ChannelShuffle, Gather, Identity, Reshape, Slice, Transpose)
"""What they give is among the elements of their first operand."""
_LOWEST = float(np.finfo(np.float32).min)


@dataclass(frozen=True)
class PadIntoPool(RewritePass):
    """Let a pool read past a Pad around the image. Other readers of the Pad keep it."""

    name: ClassVar[str] = "pad-into-pool"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Fold the Pad before one AveragePool or MaxPool."""
        operator = node.operator
        if not isinstance(operator, AveragePool | MaxPool):
            return None
        pad = producer_of(operand(node, 0), Pad)
        if pad is None:
            return None
        border = image_border(pad)
        if isinstance(border, Refused):
            return border
        found = _average(operator, pad) if isinstance(operator, AveragePool) else _maximum(operator, pad)
        if isinstance(found, Refused):
            return found
        padded = dataclasses.replace(found, pads=both_borders(operator.pads, border))
        refusal = _other_windows(node, pad, padded)
        if refusal is not None:
            return refusal
        change(node, padded, [operand(pad, 0)])
        remove_unread(graph, pad)
        return f"takes in Pad '{pad.name}'"


def _average(operator: AveragePool, pad: Node) -> AveragePool | Refused:
    assert isinstance(pad.operator, Pad)
    if pad.operator.value != 0.0:
        return Refused(f"Pad '{pad.name}' adds {pad.operator.value:g}, not zeros")
    if any(operator.pads) and not operator.count_include_pad:
        return Refused(f"its own padding does not count, that of Pad '{pad.name}' does")
    return dataclasses.replace(operator, count_include_pad=True)


def _maximum(operator: MaxPool, pad: Node) -> MaxPool | Refused:
    assert isinstance(pad.operator, Pad)
    x, value = operand(pad, 0), pad.operator.value
    if value <= _LOWEST:
        return operator  # no finite number is less
    least = _least(x)
    if value > least:
        return Refused(f"Pad '{pad.name}' adds {value:g}, and %{x.name} may be less (from {least:g})")
    return operator


def _other_windows(node: Node, pad: Node, padded: AveragePool | MaxPool) -> Refused | None:
    """Why the pool would have other windows, or some that see nothing of the image."""
    x = operand(pad, 0).type
    try:
        (kind,) = padded.infer([x])
    except OperatorTypeError as error:
        return Refused(str(error))
    if kind.shape != node.output.type.shape:
        return Refused("windows that begin beyond the image are left out in ceil mode")
    window = (padded.kernel, padded.strides, padded.pads, padded.ceil_mode)
    counts = window_counts(x.shape, *window, dilations=padded.dilations)
    if isinstance(padded, MaxPool) and not np.all(counts):
        return Refused(f"windows that see only Pad '{pad.name}' would give nothing")
    return None


def _least(value: Value) -> float:
    """A number that no element of a value is less than, as its producers show; else -inf."""
    node = value.producer
    if node is None:
        return -math.inf
    operator = node.operator
    if isinstance(operator, _NOT_NEGATIVE):
        return 0.0
    if isinstance(operator, Relu | Clip):
        return min(operator.bounds)
    if isinstance(operator, Concat):
        return min(_least(operand(node, index)) for index in range(len(node.inputs)))
    if isinstance(operator, _CHOICES) or (isinstance(operator, MaxPool) and not any(operator.pads)):
        # With padding, a MaxPool may have windows that see nothing and give -inf.
        return _least(operand(node, 0))
    return min(getattr(operator, "lo", -math.inf), getattr(operator, "hi", math.inf))
