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
from qglow.numerics.windows import Pads


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
        border = image_border(pad)
        if isinstance(border, Refused):
            return border
        assert isinstance(pad.operator, Pad)
        if pad.operator.value != 0.0:
            return Refused(f"Pad '{pad.name}' adds {pad.operator.value:g}, not zeros")
        operator = dataclasses.replace(node.operator, pads=both_borders(node.operator.pads, border))
        refusal = _too_wide(node, operator)
        if refusal is not None:
            return refusal
        change(node, operator, [operand(pad, 0), *node.inputs[1:]])
        remove_unread(graph, pad)
        return f"takes in Pad '{pad.name}'"


def image_border(pad: Node) -> Pads | Refused:
    """How much a Pad of one number adds (top, left, bottom, right) of an image, if it does nothing else."""
    operator = pad.operator
    assert isinstance(operator, Pad)
    if operator.mode != "constant":
        return Refused(f"Pad '{pad.name}' repeats elements ({operator.mode})")
    pads = operator.pads
    if len(pads) != 8 or any(pads[axis] for axis in (0, 1, 4, 5)):
        return Refused(f"Pad '{pad.name}' adds samples or channels")
    if operand(pad, 0).type.quantization != pad.output.type.quantization:
        return Refused(f"Pad '{pad.name}' changes parameters")
    return pads[2], pads[3], pads[6], pads[7]


def both_borders(inner: Pads, outer: Pads) -> Pads:
    """What two borders around each other add."""
    top, left, bottom, right = (first + second for first, second in zip(inner, outer, strict=True))
    return top, left, bottom, right


def _too_wide(node: Node, operator: Conv) -> Refused | None:
    """Windows that see nothing but padding are no work for a convolution."""
    kernel = operand(node, 1).type.shape[2:]
    reach = [dilation * (size - 1) for dilation, size in zip(operator.dilations, kernel, strict=True)]
    if any(max(operator.pads[axis], operator.pads[axis + 2]) > reach[axis] for axis in (0, 1)):
        return Refused(f"padding {list(operator.pads)} would be as large as the window")
    return None
