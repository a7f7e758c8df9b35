"""Control flow that constants or shapes decide: the chosen body, or all rounds, in place of the node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper

from qglow.core.types import Array
from qglow.graph.graph import Node, Value
from qglow.graph.ops.shape import Identity, Reshape
from qglow.importer.node import CannotImport, ImportNode
from qglow.importer.shape import joined
from qglow.interchange.nodes import all_nodes, outer_inputs, outer_names, rename

MOST_NODES = 2000
"""Nodes that the rounds of one loop may become."""
FEW_NODES = 256
"""Nodes that the rounds of a loop with products may become where it could stay a loop."""
_PRODUCTS = ("MatMul", "Gemm", "Conv")


class Importing(Protocol):
    """The import under way, as far as bodies need it."""

    def value(self, name: str) -> Value | None:
        """The value of a name, None where nothing is known about it."""

    def is_known(self, name: str) -> bool:
        """Whether something computes the value of a name, of whatever type."""

    def bind(self, name: str, data: Array) -> None:
        """Make a name stand for a constant."""

    def fresh(self, wanted: str) -> str:
        """A name that no value has; nodes may read it."""

    def keep(self, name: str, tensor: TensorProto) -> None:
        """Add a constant of a body under this name."""

    def need(self, name: str) -> None:
        """Note that something reads a value of a body, which is about to be imported."""

    def add(self, node: NodeProto) -> None:
        """Import a node of a body."""

    def place(self, value: Value) -> None:
        """Give the name of a value to it."""

    def append(self, node: Node) -> None:
        """Add a node of the graph."""

    def is_plain(self, value: Value) -> bool:
        """Whether a value is stored as the model has it: neither quantized, nor of another width or sign."""

    def scope(self) -> AbstractContextManager[list[Node]]:
        """A context whose nodes are in a list of their own."""

    def view(self, proto: NodeProto) -> ImportNode:
        """A view of a node without inputs."""

    def finish(self, node: ImportNode) -> None:
        """Take the results of a node."""

    def attempt(self) -> Any:
        """A context that takes back all that was imported in it where CannotImport or a problem arises."""


class Open(Exception):
    """A node stays as it is: its condition or count, `value`, is computed, or a body does not fit."""

    def __init__(self, value: Value | None = None) -> None:
        super().__init__()
        self.value = value


class ControlFlow:
    """If, Loop and Scan of ONNX: https://onnx.ai/onnx/operators/onnx__If.html, onnx__Loop.html and so on."""

    def __init__(self, importing: Importing) -> None:
        self._importing = importing
        self._most = MOST_NODES
        self.open: Value | None = None
        """The condition or the count that the last node wanted constant which was not replaced."""

    def replace(self, proto: NodeProto, most: int = MOST_NODES) -> bool:
        """Import what a node comes to; False, with nothing changed, where that is open or it is another.

        most: nodes that the rounds of a loop may become.
        """
        self.open = None
        self._most = most
        if not is_control(proto):
            return False
        act = {"If": self._choose, "Loop": self._repeat, "Scan": self._scan}[proto.op_type]
        try:
            with self._importing.attempt():
                act(proto)
        except Open as stop:
            self.open = stop.value
            return False
        except CannotImport:
            self.open = None
            return False
        return True

    def _choose(self, proto: NodeProto) -> None:
        wanted = "then_branch" if self._constant(proto.input[0]) else "else_branch"
        results = import_body(self._importing, body_of(proto, wanted), {}, proto)
        self._name_results(results, proto.output)

    def _repeat(self, proto: NodeProto) -> None:
        limit, start, *carried = [*proto.input, "", ""][: max(len(proto.input), 2)]
        most = int(self._constant(limit)) if limit else MOST_NODES
        goes_on = bool(self._constant(start)) if start else True
        body, rounds, allowed = body_of(proto, "body"), list[list[str]](), self._most
        size = max(sum(1 for _ in all_nodes(body.node)), 1)
        while goes_on and len(rounds) < most:
            if (len(rounds) + 1) * size > allowed:
                raise Open
            counted, goes = (self._importing.fresh(f"{label_of(proto)}__{what}") for what in ("round", "go"))
            self._importing.bind(counted, np.array(len(rounds), np.int64))
            self._importing.bind(goes, np.array(True))
            names = [value.name for value in body.input]
            given = dict(zip(names, [counted, goes, *carried], strict=True))
            stays, *results = import_body(self._importing, body, given, proto)
            goes_on = bool(self._constant(stays))
            carried = results[: len(carried)]
            rounds.append(results[len(carried) :])
        self._name_results(carried, proto.output[: len(carried)])
        self._collect(proto, len(carried), rounds)

    def _scan(self, proto: NodeProto) -> None:
        """Import a Scan of opset 9 and later: a round for every slice of the inputs."""
        body, settings = body_of(proto, "body"), {a.name: list(a.ints) for a in proto.attribute}
        count = next(int(a.i) for a in proto.attribute if a.name == "num_scan_inputs")
        first = len(proto.input) - count
        states, sources = list(proto.input[:first]), proto.input[first:]
        axes, back = (listed(settings, f"scan_input_{what}", count) for what in ("axes", "directions"))
        sizes = [self._extent(name, axis) for name, axis in zip(sources, axes, strict=True)]
        if len(set(sizes)) != 1 or sizes[0] * max(sum(1 for _ in all_nodes(body.node)), 1) > self._most:
            raise Open
        names = [value.name for value in body.input]
        if len(names) != len(proto.input):
            raise Open  # opset 8 had batches
        rounds = []
        for number in range(sizes[0]):
            slices = [
                self._slice(proto, source, axis, sizes[0] - 1 - number if turned else number)
                for source, axis, turned in zip(sources, axes, back, strict=True)
            ]
            results = import_body(
                self._importing, body, dict(zip(names, [*states, *slices], strict=True)), proto
            )
            states = results[:first]
            rounds.append(results[first:])
        self._name_results(states, proto.output[:first])
        more = len(proto.output) - first
        axes, back = (listed(settings, f"scan_output_{what}", more) for what in ("axes", "directions"))
        self._collect(proto, first, rounds, axes, back)

    def _extent(self, name: str, axis: int) -> int:
        value = self._importing.value(name)
        if value is None or not -len(value.type.shape) <= axis < len(value.type.shape):
            raise Open
        return value.type.shape[axis]

    def _slice(self, proto: NodeProto, source: str, axis: int, index: int) -> str:
        """Import one slice of a value and name it."""
        place, result = (self._importing.fresh(f"{label_of(proto)}__{what}") for what in ("place", "slice"))
        self._importing.bind(place, np.array(index, np.int64))
        self._importing.add(helper.make_node("Gather", [source, place], [result], axis=axis))
        return result

    def _constant(self, name: str) -> Any:
        value = self._importing.value(name)
        if value is None or value.data is None or value.data.size != 1:
            raise Open(value)
        return value.data.reshape(())[()]

    def _name_results(self, names: Sequence[str], outputs: Sequence[str]) -> None:
        for name, output in zip(names, outputs, strict=False):
            if output:
                self._importing.add(helper.make_node("Identity", [name], [output]))

    def _collect(
        self,
        proto: NodeProto,
        first: int,
        rounds: Sequence[Sequence[str]],
        axes: Sequence[int] | None = None,
        back: Sequence[int] | None = None,
    ) -> None:
        """Put what each round gives besides behind one another along a new axis: the first, or of `axes`.

        back: whether the last round comes first.
        """
        node = self._importing.view(proto)
        for number, output in enumerate(proto.output[first:]):
            if not output:
                continue
            values = [self._importing.value(names[number]) for names in rounds]
            rows, axis = list[Value](), axes[number] if axes else 0
            for index, value in enumerate(values):
                if value is None:
                    raise Open
                shape = list(value.type.shape)
                axis %= len(shape) + 1
                shape.insert(axis, 1)
                rows.append(node.emit(Reshape(tuple(shape)), value, part=f"row{index}"))
            if not rows:
                raise Open
            rows = rows[::-1] if back and back[number] else rows
            whole = joined(node, rows, f"rows{number}", axis)
            node.emit(Identity(), whole, output=first + number)
        self._importing.finish(node)


def is_control(proto: NodeProto) -> bool:
    """Whether a node is one of those that `ControlFlow` may replace."""
    return proto.domain in ("", "ai.onnx") and proto.op_type in ("If", "Loop", "Scan")


def has_products(proto: NodeProto) -> bool:
    """Whether a Loop or a Scan has layers with weights inside, which each of its rounds would repeat."""
    bodies = [attribute.g for attribute in proto.attribute if attribute.name == "body"]
    return any(node.op_type in _PRODUCTS for body in bodies for node in all_nodes(body.node))


def import_body(
    importing: Importing, body: GraphProto, given: Mapping[str, str], proto: NodeProto
) -> list[str]:
    """Import the nodes of a body under names of their own; return the names of its results."""
    label = label_of(proto)
    names = {name: name for name in outer_inputs(body.node)} | {v.name: v.name for v in body.output}
    names |= given
    wanted = {value.name for value in body.output} | {n for node in body.node for n in outer_names(node)}
    for tensor in body.initializer:
        names[tensor.name] = importing.fresh(f"{label}__{tensor.name}")
        importing.keep(names[tensor.name], tensor)
    for node in body.node:
        copy = node_of_body(node, label, names, importing.fresh)
        for old, new in zip(node.output, copy.output, strict=True):
            if old in wanted:
                importing.need(new)
        importing.add(copy)
    results = [names[value.name] for value in body.output]
    if not all(map(importing.is_known, results)):
        raise Open
    return results


def node_of_body(
    node: NodeProto, label: str, names: dict[str, str], fresh: Callable[[str], str]
) -> NodeProto:
    """Return a node of a body as one beside the node of this label; `names` as `rename` has them."""
    copy = NodeProto()
    copy.CopyFrom(node)
    rename(copy, names, lambda name: fresh(f"{label}__{name}"))
    copy.name = f"{label}__{node.name or node.op_type}"
    return copy


def listed(settings: Mapping[str, list[int]], name: str, count: int) -> list[int]:
    """Return a number for each of some inputs or outputs, 0 where none is stated."""
    return settings.get(name) or [0] * count


def body_of(proto: NodeProto, name: str) -> GraphProto:
    """Return a body of a node. Raises Open where it has none of this name."""
    for attribute in proto.attribute:
        if attribute.name == name:
            found: GraphProto = attribute.g
            return found
    raise Open


def label_of(proto: NodeProto) -> str:
    """Return what the names of all that becomes of a node begin with."""
    return str(proto.name or proto.op_type)


@contextmanager
def taking_back(restore: Callable[[], None], problems: Callable[[], int]) -> Iterator[None]:
    """Run the body; call `restore` where it raises, or adds problems, which raises CannotImport."""
    before = problems()
    try:
        yield
        if problems() > before:
            raise CannotImport("a node of its body is not supported")
    except Exception:
        restore()
        raise
