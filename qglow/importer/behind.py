"""The part of a model behind the first shape that data decides, as positions of its nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from onnx import NodeProto

from qglow.interchange.nodes import outer_names


def members_behind(
    nodes: Sequence[NodeProto],
    results: Iterable[str],
    others: Iterable[str],
    is_pending: Callable[[str], bool],
    may_move: Callable[[int, bool], bool],
) -> list[int]:
    """Positions of the nodes that compute results, from the first shape on that data decides.

    others: names of what is computed besides. is_pending: whether a value has no static type; what gives such
    values is taken in any case. may_move: whether a node may be taken that gives others, given whether it
    only orders elements, or comes behind a node that does; else it comes behind such values. It is taken
    unless `others` need it.

    Elements that are nearly equal change places in int8, so that what comes behind an order cannot be
    compared element by element; what goes into it can.
    """
    producers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    needed = _ancestors(nodes, producers, others, lambda index: True)
    pending = {index for name, index in producers.items() if is_pending(name)}
    behind = _descendants(nodes, pending)
    ordered = _descendants(nodes, {i for i, node in enumerate(nodes) if _is_order(node)})

    def is_taken(index: int) -> bool:
        if index in pending:
            return True
        if index in needed:
            return False
        return (index in behind and may_move(index, False)) or (index in ordered and may_move(index, True))

    return sorted(_ancestors(nodes, producers, results, is_taken))


def _is_order(node: NodeProto) -> bool:
    return node.op_type == "TopK" and node.domain in ("", "ai.onnx")


def _descendants(nodes: Sequence[NodeProto], first: Collection[int]) -> Collection[int]:
    """Positions of some nodes and of all that read their results, in whatever number of steps."""
    late: set[str] = set()
    found: set[int] = set()
    for index, node in enumerate(nodes):
        if index in first or any(name in late for name in outer_names(node)):
            found.add(index)
            late.update(node.output)
    return found


def _ancestors(
    nodes: Sequence[NodeProto],
    producers: dict[str, int],
    names: Iterable[str],
    is_taken: Callable[[int], bool],
) -> Collection[int]:
    """Positions of the nodes that lead to values, as far back as they are taken."""
    found: set[int] = set()
    waiting = list(names)
    while waiting:
        index = producers.get(waiting.pop())
        if index is not None and index not in found and is_taken(index):
            found.add(index)
            waiting += outer_names(nodes[index])
    return found
