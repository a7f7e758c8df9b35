"""A border of zeros becomes the padding of the convolution that reads it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Refused
from qglow.graph.graph import Graph, Node
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.shape import Pad
from qglow.graph.rewriting import Outcome, RewritePass, change, operand, producer_of, remove_unread


@dataclass(frozen=True)
class PadIntoConv(RewritePass):
    """Let a Conv read past a Pad of zeros around the image. Other readers of the Pad keep it."""

    name: ClassVar[str] = "pad-into-conv"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Fold the Pad before one Conv."""
        if not isinstance(node.operator, Conv):
            return None
        pad = producer_of(operand(node, 0), Pad)
        if pad is None:
            return None
        refusal = _unfit(pad) or _too_wide(node, pad)
        if refusal is not None:
            return refusal
        change(node, _padded(node, pad), [operand(pad, 0), *node.inputs[1:]])
        remove_unread(graph, pad)
        return f"takes in Pad '{pad.name}'"


def _unfit(pad: Node) -> Refused | None:
    operator = pad.operator
    assert isinstance(operator, Pad)
    if operator.mode != "constant":
        return Refused(f"Pad '{pad.name}' repeats elements ({operator.mode})")
    if operator.value != 0.0:
        return Refused(f"Pad '{pad.name}' adds {operator.value:g}, not zeros")
    if any(operator.pads[axis] for axis in (0, 1, 4, 5)):
        return Refused(f"Pad '{pad.name}' adds samples or channels")
    if operand(pad, 0).type.quantization != pad.output.type.quantization:
        return Refused(f"Pad '{pad.name}' changes parameters")
    return None


def _padded(node: Node, pad: Node) -> Conv:
    convolution, operator = node.operator, pad.operator
    assert isinstance(convolution, Conv) and isinstance(operator, Pad)
    top, left, bottom, right = convolution.pads
    border = operator.pads
    pads = (top + border[2], left + border[3], bottom + border[6], right + border[7])
    return dataclasses.replace(convolution, pads=pads)


def _too_wide(node: Node, pad: Node) -> Refused | None:
    """Windows that see nothing but padding are no work for a convolution."""
    operator = _padded(node, pad)
    kernel = operand(node, 1).type.shape[2:]
    reach = [dilation * (size - 1) for dilation, size in zip(operator.dilations, kernel, strict=True)]
    if any(max(operator.pads[axis], operator.pads[axis + 2]) > reach[axis] for axis in (0, 1)):
        return Refused(f"padding {list(operator.pads)} would be as large as the window")
    return None
