"""A border of zeros becomes the padding of the convolution that reads it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Refused
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.movement import Pad
from qglow.graph.rewriting import Outcome, RewritePass, change, operand, producer_of, remove_unread
from qglow.graph.traits import ImageBorder


@dataclass(frozen=True)
class PadIntoConv(RewritePass):
    """Let a convolution read past a Pad of zeros around the image. Other readers of the Pad keep it."""

    name: ClassVar[str] = "pad-into-conv"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Fold the Pad before one convolution."""
        return take_in_pad(node, graph) if node.operator.filters is not None else None


def take_in_pad(node: Node, graph: Graph) -> Outcome:
    """Let a node with a window read past the Pad before it, if its operator can add the border itself."""
    if node.operator.window(node.input_types()) is None:
        return None
    pad = producer_of(operand(node, 0), Pad)
    if pad is None:
        return None
    border = _image_border(pad)
    if isinstance(border, Refused):
        return border
    inputs = [operand(pad, 0), *node.inputs[1:]]
    operator = node.operator.with_border(border, [None if v is None else v.type for v in inputs])
    if operator is None or isinstance(operator, str):
        return None if operator is None else Refused(operator)
    change(node, operator, inputs)
    remove_unread(graph, pad)
    return f"takes in Pad '{pad.name}'"


def _image_border(pad: Node) -> ImageBorder | Refused:
    """The border that a Pad of one number adds around an image, if it does nothing else."""
    operator, x = pad.operator, operand(pad, 0)
    assert isinstance(operator, Pad)
    if operator.mode != "constant":
        return Refused(f"Pad '{pad.name}' repeats elements ({operator.mode})")
    pads = operator.pads
    if len(pads) != 8 or any(pads[axis] for axis in (0, 1, 4, 5)):
        return Refused(f"Pad '{pad.name}' adds samples or channels")
    if x.type.quantization != pad.output.type.quantization:
        return Refused(f"Pad '{pad.name}' changes parameters")
    sides = pads[2], pads[3], pads[6], pads[7]
    return ImageBorder(sides, operator.value, _least(x), f"Pad '{pad.name}'", x.name)


def _least(value: Value) -> float:
    """A lower bound of a value's elements, derived from its producers; -inf if none is known."""
    node = value.producer
    if node is None:
        return -math.inf
    sources = node.operator.elements_from(len(node.inputs))
    return min((_least(operand(node, index)) for index in sources), default=node.operator.result_range[0])
