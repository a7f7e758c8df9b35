"""Scales of rows, and rows of integers by them: the value seen as [rows, elements of a row].

RowScales alone becomes rowscales; with the division by the scales, the clamp and the rounding that follow it
becomes one quantizerows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops import rows as graph
from qglow.graph.ops.elementwise import Clip, Div
from qglow.graph.ops.quantize import Quantize
from qglow.graph.ops.rows import THEMSELVES
from qglow.graph.rewriting import only_user
from qglow.instructions.ops.rows import QuantizeRows, RowScales
from qglow.instructions.program import Buffer
from qglow.lowering.context import Lowering, natural
from qglow.lowering.rules import lowers
from qglow.numerics.rows import LARGEST


@lowers(graph.RowScales)
def lower_row_scales(lowering: Lowering, node: Node, operator: graph.RowScales) -> None:
    """Lower to one rowscales."""
    x = node.inputs[0]
    assert x is not None
    lowering.emit(RowScales(), _write_rows(lowering, node.output), _read_rows(lowering, x))


@dataclass(frozen=True, eq=False)
class QuantizedRows:
    """Nodes that become one quantizerows (see `joins.Join`): the first measures rows, the last rounds."""

    nodes: tuple[Node, ...]

    @property
    def place(self) -> Node:
        """The node whose place the instruction takes: scales may be read before integers are."""
        return self.nodes[0]

    def lower(self, lowering: Lowering) -> None:
        """Lower to one instruction, of whose rows those matter that do of the integers."""
        first, last = self.nodes[0], self.nodes[-1]
        x = first.inputs[0]
        assert x is not None
        source = _read_rows(lowering, x)
        integers, scales = (_write_rows(lowering, node.output) for node in (last, first))
        instruction = lowering.emit(QuantizeRows(), integers, scales, source)
        instruction.live = lowering.live_of(integers)


def find_quantized_rows(graph_: Graph) -> list[QuantizedRows]:
    """Chains of RowScales, Div, Clip and Quantize, of which nothing else reads quotients."""
    found = (_chain(graph_, node) for node in graph_.nodes if node.operator.measures_rows)
    return [chain for chain in found if chain is not None]


def _chain(graph_: Graph, first: Node) -> QuantizedRows | None:
    x, scales = first.inputs[0], first.output
    quotients = [n for n in scales.users() if n.operator == Div() and tuple(n.inputs) == (x, scales)]
    if len(quotients) != 1:
        return None
    clips = only_user(graph_, quotients[0].output)
    clamp = Clip(lo=-float(LARGEST), hi=float(LARGEST))
    rounds = None if clips is None or clips.operator != clamp else only_user(graph_, clips.output)
    if rounds is None or rounds.operator != Quantize() or rounds.output.type.quantization != THEMSELVES:
        return None
    assert clips is not None
    return QuantizedRows((first, quotients[0], clips, rounds))


def _read_rows(lowering: Lowering, x: Value) -> Buffer:
    """A value as [rows, elements of a row]."""
    source = lowering.read(x, natural(x.type.shape))
    return lowering.view(f"{x.name}.rows", source, x.type.with_shape(_rows(x)))


def _write_rows(lowering: Lowering, value: Value) -> Buffer:
    """Buffer of a result, as [rows, elements of a row]."""
    dest = lowering.write(value)
    return lowering.view(f"{dest.name}.rows", dest, value.type.with_shape(_rows(value)))


def _rows(value: Value) -> tuple[int, int]:
    *outer, length = value.type.shape
    return math.prod(outer), length
