"""Bodies of control flow, as those who import them see the import under way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from onnx import NodeProto, TensorProto

from qglow.core.types import Array
from qglow.graph.graph import Node, Value, constant
from qglow.importer.control import taking_back
from qglow.importer.node import ImportNode
from qglow.importer.value_table import UnknownValue, ValueTable
from qglow.interchange.nodes import outer_names


class Underway(Protocol):
    """The nodes of an import under way."""

    @property
    def problems(self) -> Mapping[int, object]:
        """Problems by the position of nodes."""

    def add(self, proto: NodeProto) -> None:
        """Import a node."""

    def is_pending(self, name: str) -> bool:
        """Whether the value of a name has a type that is only known when the model runs."""

    def view(self, proto: NodeProto) -> ImportNode:
        """A node without inputs for its import function."""

    def checkpoint(self) -> Callable[[], None]:
        """A function that takes back all that is imported from now on."""


class Bodies:
    """Satisfies `Importing` with an import under way."""

    def __init__(self, work: Underway, table: ValueTable) -> None:
        self._work, self._table = work, table

    def value(self, name: str) -> Value | None:
        """The value of a name, None where nothing is known about it."""
        try:
            return self._table.input(name)
        except UnknownValue:
            return None

    def is_known(self, name: str) -> bool:
        """Whether something computes the value of a name, of whatever type."""
        return self._work.is_pending(name) or self.value(name) is not None

    def bind(self, name: str, data: Array) -> None:
        """Make a name stand for a constant."""
        self._table.set(name, constant(name, data))

    def fresh(self, wanted: str) -> str:
        """A name that no value has; nodes may read it."""
        return self._table.fresh(wanted)

    def keep(self, name: str, tensor: TensorProto) -> None:
        """Add a constant of a body under this name."""
        self._table.keep(name, tensor)

    def need(self, name: str) -> None:
        """Note that something reads a value of a body."""
        self._table.read_by_bodies(name, [])

    def add(self, node: NodeProto) -> None:
        """Import a node of a body."""
        for name in outer_names(node):
            self._table.read_by_bodies(name, [node.op_type])
        self._work.add(node)

    def place(self, value: Value) -> None:
        """Give the name of a value to it."""
        self._table.set(value.name, value)

    def append(self, node: Node) -> None:
        """Add a node of the graph."""
        self._table.append(node)

    def is_plain(self, value: Value) -> bool:
        """Whether a value is neither quantized, nor of another width or sign in the model."""
        return self._table.is_plain(value)

    def scope(self) -> AbstractContextManager[list[Node]]:
        """A context whose nodes are in a list of their own."""
        return self._table.scope()

    def view(self, proto: NodeProto) -> ImportNode:
        """A view of a node without inputs."""
        return self._work.view(proto)

    def finish(self, node: ImportNode) -> None:
        """Take the results of a node."""
        for name, value in node.results.items():
            self._table.set(name, value)

    def attempt(self) -> AbstractContextManager[None]:
        """A context that takes back all that was imported in it where CannotImport or a problem arises."""
        return taking_back(self._work.checkpoint(), lambda: len(self._work.problems))
