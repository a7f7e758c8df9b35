"""Names of nodes and values of one import, none of which is given twice."""

from __future__ import annotations

from collections.abc import Iterable

from onnx import NodeProto


class Names:
    """Names that are taken, and new ones beside them."""

    def __init__(self, nodes: Iterable[NodeProto], values: Iterable[str]) -> None:
        """nodes: of the model, whose own names are taken. values: names of values that are taken."""
        self._nodes = {node.name for node in nodes if node.name}
        self._values = set(values)
        self._named: set[str] = set()
        self._chosen: dict[int, str] = {}

    def value(self, wanted: str) -> str:
        """A name that no value has."""
        return _fresh(wanted, self._values)

    def node(self, index: int, proto: NodeProto) -> str:
        """The node's own name the first time it occurs, else one that no node has; once for each node."""
        if index not in self._chosen:
            if proto.name and proto.name not in self._named:
                self._named.add(proto.name)
                self._nodes.add(proto.name)
                self._chosen[index] = proto.name
            else:
                self._chosen[index] = _fresh(shown_name(index, proto), self._nodes)
        return self._chosen[index]

    def part(self, node: str, output: str, part: str) -> tuple[str, str]:
        """Names for an operator that is a part of an ONNX node, and for its result."""
        return _fresh(f"{node}__{part}", self._nodes), _fresh(f"{output}__{part}", self._values)


def shown_name(index: int, proto: NodeProto) -> str:
    """The name of a node in messages."""
    return str(proto.name or f"{proto.op_type}_{index}")


def operator_name(proto: NodeProto) -> str:
    """The operator with its domain, without that of ONNX itself."""
    domain = f"{proto.domain}." if proto.domain not in ("", "ai.onnx") else ""
    return f"{domain}{proto.op_type}"


def _fresh(wanted: str, taken: set[str]) -> str:
    name, count = wanted, 0
    while name in taken:
        count += 1
        name = f"{wanted}__{count}"
    taken.add(name)
    return name
