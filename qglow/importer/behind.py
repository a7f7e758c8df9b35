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
    may_move: Callable[[int], bool],
) -> list[int]:
    """Positions of the nodes that compute results, from the first shape on that data decides.

    others: names of what is computed besides. is_pending: whether a value has no static type; what gives such
    values is taken in any case. may_move: whether a node behind such values may be taken that gives
    others; it is, unless `others` need it.
    """
    producers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    needed = _ancestors(nodes, producers, others, lambda index: True)
    pending = {index for name, index in producers.items() if is_pending(name)}
    late: set[str] = set()
    behind: set[int] = set()
    for index, node in enumerate(nodes):
        if index in pending or any(name in late for name in outer_names(node)):
            behind.add(index)
            late.update(node.output)

    def is_taken(index: int) -> bool:
        return index in pending or (index in behind and index not in needed and may_move(index))

    return sorted(_ancestors(nodes, producers, results, is_taken))


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
