"""Chains of images in strips: rows of the last result are computed one strip after the other.

Of the results between only a strip lives at a time. Rows that two strips of a window need are computed
twice, which changes no bit. Compare: Lin et al., MCUNetV2: Memory-Efficient Patch-based Inference, 2021.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from qglow.core.types import TensorType
from qglow.graph.graph import Graph, Node, Value
from qglow.lowering.lifetimes import peak
from qglow.lowering.shape import joined, part

ROWS = 2
"""Axis of rows in an image [N, C, H, W]."""
MOST_NODES = 6
"""Longest part of a chain before and behind the node at the peak."""
STRIPS = (2, 4, 8, 16)


def compute_in_strips(graph: Graph, most: int) -> list[str]:
    """Compute chains in strips, in place, until at most `most` bytes of activations live at one time.

    Ends earlier where no further chain helps. The nodes keep their order. Returns a phrase for each chain.
    """
    done: list[str] = []
    split: set[str] = set()
    while True:
        before, node = peak(graph)
        if before <= most or node is None:
            return done
        tried = [_Trial.of(graph, names, count) for names, count in _candidates(graph, node, split)]
        better = [trial for trial in tried if trial.peak < before]
        if not better:
            return done
        fitting = [trial for trial in better if trial.peak <= most]
        best = min(fitting, key=lambda t: t.work) if fitting else min(better, key=lambda t: (t.peak, t.work))
        split |= _split(graph, [graph.node(name) for name in best.names], best.strips)
        done.append(f"'{best.names[0]}' to '{best.names[-1]}' in {best.strips} strips")


@dataclass(frozen=True)
class _Trial:
    """Nodes by name in so many strips: the peak that is left, and the work of all nodes in operations."""

    names: tuple[str, ...]
    strips: int
    peak: int
    work: int

    @staticmethod
    def of(graph: Graph, names: tuple[str, ...], strips: int) -> _Trial:
        copy = graph.copy()
        _split(copy, [copy.node(name) for name in names], strips)
        return _Trial(names, strips, peak(copy)[0], sum(_work(node) for node in copy.nodes))


def _work(node: Node) -> int:
    filters, weights = node.operator.filters, node.inputs[1] if len(node.inputs) > 1 else None
    size = sum(value.type.size for value in node.outputs)
    if filters is None or weights is None:
        return size
    return size * weights.type.size // max(1, weights.type.shape[filters.outputs])


def _candidates(graph: Graph, node: Node, split: set[str]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Chains through a node, by the names of their nodes, and numbers of strips."""
    if not _goes_by_rows(node) or node.name in split:
        return
    before, behind = [node], [node]
    while len(before) <= MOST_NODES and (found := _previous(graph, before[-1], split)) is not None:
        before.append(found)
    while len(behind) <= MOST_NODES and (found := _next(graph, behind[-1], split)) is not None:
        behind.append(found)
    for first in range(len(before)):
        for last in range(len(behind)):
            chain = [*reversed(before[: first + 1]), *behind[1 : last + 1]]
            rows = chain[-1].output.type.shape[ROWS]
            if len(chain) > 1:
                names = tuple(one.name for one in chain)
                yield from ((names, count) for count in STRIPS if count <= rows and _divides(chain, count))


def _previous(graph: Graph, node: Node, split: set[str]) -> Node | None:
    """The node that computes rows for this one alone; of several, the one with the largest result."""
    found = [
        value.producer
        for value in node.inputs
        if value is not None and value.producer is not None and _next(graph, value.producer, split) is node
    ]
    fitting = [one for one in found if _goes_by_rows(one) and one.name not in split]
    return max(fitting, key=lambda one: one.output.type.byte_size, default=None)


def _next(graph: Graph, node: Node, split: set[str]) -> Node | None:
    """The only node that reads this one's result, if it takes rows."""
    users = node.output.users()
    if (
        len(users) != 1
        or graph.is_output(node.output)
        or node.output.type.shape[ROWS : ROWS + 1] in ((), (1,))
    ):
        return None
    user = users[0]
    return user if _goes_by_rows(user) and user.name not in split else None


def _goes_by_rows(node: Node) -> bool:
    """Whether rows of the result follow from rows of images, and from operands that have no rows."""
    operator, kinds = node.operator, node.input_types()
    if len(node.outputs) != 1 or len(node.output.type.shape) != 4 or not node.output.type.size:
        return False
    if operator.window(kinds) is not None:
        first = node.inputs[0]
        constant = all(value is None or value.is_constant for value in node.inputs[1:])
        return constant and first is not None and not getattr(operator, "ceil_mode", False)
    if not (operator.elementwise or operator.aligned):
        return False
    return all(_has_rows_of(value, node) or _has_no_rows(value) for value in node.inputs)


def _has_no_rows(value: Value | None) -> bool:
    return value is None or len(value.type.shape) < 2 or value.type.shape[-2] == 1


def _has_rows_of(value: Value | None, node: Node) -> bool:
    if value is None or value.is_constant or len(value.type.shape) != 4:
        return False
    return value.type.shape[ROWS] == node.output.type.shape[ROWS] > 1


@dataclass(frozen=True)
class _Strip:
    """Rows [first, last) of a result, rows [begin, end) of the image that they need, and rows of padding."""

    first: int
    last: int
    begin: int
    end: int
    above: int = 0
    below: int = 0


def _strip(node: Node, first: int, last: int) -> _Strip:
    window, image = node.operator.window(node.input_types()), node.inputs[0]
    if window is None or image is None:
        return _Strip(first, last, first, last)
    height, reach = image.type.shape[ROWS], window.dilations[0] * (window.kernel[0] - 1) + 1
    begin = first * window.strides[0] - window.pads[0]
    end = (last - 1) * window.strides[0] - window.pads[0] + reach
    return _Strip(first, last, max(begin, 0), min(end, height), max(-begin, 0), max(end - height, 0))


def _strips(chain: Sequence[Node], count: int) -> list[list[_Strip]]:
    """Strips of all nodes in their order, for each strip of the last result."""
    rows = chain[-1].output.type.shape[ROWS]
    found = []
    for first, last in pairwise(rows * number // count for number in range(count + 1)):
        own: list[_Strip] = []
        for node in reversed(chain):
            own.append(_strip(node, first, last))
            first, last = own[-1].begin, own[-1].end
        found.append(own[::-1])
    return found


def _divides(chain: Sequence[Node], count: int) -> bool:
    """Whether every strip has rows, of the images too: none lies in padding alone."""
    return all(one.first < one.last and one.begin < one.end for own in _strips(chain, count) for one in own)


def _split(graph: Graph, chain: Sequence[Node], count: int) -> set[str]:
    """Replace a chain by strips and their concatenation; returns the names of all new nodes."""
    last = chain[-1]
    made: list[Node] = []
    parts = []
    for own in _strips(chain, count):
        held: tuple[Value, Value] | None = None
        for node, strip in zip(chain, own, strict=True):
            inputs = [_operand(graph, value, node, strip, held, made) for value in node.inputs]
            held = node.output, _part(graph, node, strip, inputs, made)
        assert held is not None
        parts.append(held[1])
    result = last.outputs
    for node in chain:
        node.inputs = ()
    for node in chain[:-1]:
        graph.nodes.remove(node)
    graph.nodes.replace(last, [*made, Node(last.name, joined(ROWS), parts, result)])
    return {last.name, *(node.name for node in made)}


def _operand(
    graph: Graph,
    value: Value | None,
    node: Node,
    strip: _Strip,
    held: tuple[Value, Value] | None,
    made: list[Node],
) -> Value | None:
    """An operand of a strip: what the node before has computed, rows of an image, or the whole."""
    if value is not None and held is not None and value is held[0]:
        return held[1]
    is_image = node.operator.window(node.input_types()) is not None and value is node.inputs[0]
    if value is None or not (is_image or _has_rows_of(value, node)):
        return value
    begin, end = (strip.begin, strip.end) if is_image else (strip.first, strip.last)
    if (begin, end) == (0, value.type.shape[ROWS]):
        return value
    rows = part(value.type.shape, ROWS, begin, end)
    return _new(graph, f"{value.name}.rows{begin}", rows, [value], _with_rows(value.type, end - begin), made)


def _part(graph: Graph, node: Node, strip: _Strip, inputs: Sequence[Value | None], made: list[Node]) -> Value:
    operator: Any = node.operator
    if operator.window(node.input_types()) is not None:
        _, left, _, right = operator.pads
        operator = replace(operator, pads=(strip.above, left, strip.below, right))
    kind = _with_rows(node.output.type, strip.last - strip.first)
    return _new(graph, f"{node.name}.rows{strip.first}", operator, inputs, kind, made)


def _new(
    graph: Graph, name: str, operator: Any, inputs: Sequence[Value | None], kind: TensorType, made: list[Node]
) -> Value:
    taken = {node.name for node in made}
    while name in taken:
        name = f"{name}_"
    name = graph.unique_name(name)
    made.append(Node(name, operator, inputs, [Value(name, kind)]))
    return made[-1].output


def _with_rows(kind: TensorType, rows: int) -> TensorType:
    shape = list(kind.shape)
    shape[ROWS] = rows
    return kind.with_shape(tuple(shape))
