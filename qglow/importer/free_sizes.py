"""Loops whose number of rounds follows a size that the file leaves free, as that of a sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import cached_property

from onnx import NodeProto

from qglow.core.types import Dimension
from qglow.graph.graph import Value
from qglow.importer.control import Open, body_of, listed
from qglow.importer.inference import declared_dimensions
from qglow.importer.loading import ModelFile
from qglow.interchange.nodes import integer_attribute, outer_names

_KEEP_PLACES = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze")
"""Operators that hand on the elements of a list in their order."""

_MOST_AXES = 64
"""Elements of the longest list of sizes that is looked into."""

_Places = Set[int] | None
"""Elements of a list of sizes; None for all of them."""


class FreeSizes:
    """Tells which loops of a model have as many rounds as a free dimension has places.

    Such a loop is no sequence of nodes: one graph of all its rounds would stand for a single size.
    """

    def __init__(self, model: ModelFile, value: Callable[[str], Value | None]) -> None:
        """value: gives what is imported under a name."""
        self._model = model
        self._value = value

    def decide_rounds(self, proto: NodeProto) -> bool:
        """Whether a node is a Loop or a Scan with rounds that follow a free size."""
        if proto.domain not in ("", "ai.onnx") or proto.op_type not in ("Loop", "Scan"):
            return False
        try:
            return self._scans_free(proto) if proto.op_type == "Scan" else self._counts_free(proto)
        except Open:
            return False

    def _scans_free(self, proto: NodeProto) -> bool:
        settings = {a.name: list(a.ints) for a in proto.attribute}
        count = next((int(a.i) for a in proto.attribute if a.name == "num_scan_inputs"), 0)
        axes = listed(settings, "scan_input_axes", count)
        sources = proto.input[len(proto.input) - count :]
        return any(self._is_free(name, {axis}) for name, axis in zip(sources, axes, strict=True))

    def _counts_free(self, proto: NodeProto) -> bool:
        """Whether what ends a Loop is computed from a free size: its limit, or its condition."""
        body = body_of(proto, "body")
        starts = dict(zip((value.name for value in body.input[2:]), proto.input[2:], strict=False))
        results = dict(zip(starts, (value.name for value in body.output[1:]), strict=False))
        inside = {name: node for node in body.node for name in node.output}
        own = {tensor.name for tensor in body.initializer} | {value.name for value in body.input[:2]}
        ends: list[str] = [name for name in proto.input[:2] if name]
        waiting = [body.output[0].name] if body.output else []
        seen = set(waiting)
        while waiting:
            name = waiting.pop()
            if name in inside:
                new = outer_names(inside[name])
            elif name in starts:
                ends.append(starts[name])
                new = [results[name]] if name in results else []
            else:
                ends += [] if name in own else [name]
                continue
            waiting += [each for each in new if each not in seen]
            seen.update(new)
        return self._reads_free(ends)

    def _reads_free(self, names: Sequence[str]) -> bool:
        """Whether a free size is among what these values are computed from."""
        waiting: list[tuple[str, _Places]] = [(name, None) for name in names]
        seen = set(waiting)
        while waiting:
            name, places = waiting.pop()
            node = self._producers.get(name)
            if node is None:
                continue
            if node.op_type in ("Shape", "Size"):
                first = integer_attribute(node, "start", 0)
                if self._is_free(node.input[0], None if places is None or first else places):
                    return True
                continue
            new = set(self._sources(node, places)) - seen
            seen |= new
            waiting += new
        return False

    def _sources(self, node: NodeProto, places: _Places) -> Iterator[tuple[str, _Places]]:
        """The values that a node reads, with the elements that some of its result are computed from."""
        chosen = self._chosen(node)
        if chosen is not None:
            kept = (chosen[p] for p in range(len(chosen)) if places is None or p in places)
            yield node.input[0], frozenset(kept)
        elif node.op_type in _KEEP_PLACES:
            yield node.input[0], places
        else:
            yield from ((name, None) for name in outer_names(node))

    def _chosen(self, node: NodeProto) -> list[int] | None:
        """The elements of a list that a Gather or a Slice of constant places takes; None for other nodes."""
        if node.op_type not in ("Gather", "Slice") or len(node.input) < 2:
            return None
        given = [self._numbers(name) for name in node.input[1:]]
        numbers = [one for one in given if one is not None]
        if len(numbers) < len(given) or any(number < 0 for one in numbers for number in one):
            return None
        if node.op_type == "Gather":
            return numbers[0]
        if any(len(one) != 1 for one in numbers):
            return None
        first, last, *axis_and_step = (one[0] for one in numbers)
        return list(range(_MOST_AXES))[first : last : (axis_and_step[1:] or [1])[0] or 1]

    def _numbers(self, name: str) -> list[int] | None:
        """The integers of a short constant."""
        value = self._value(name)
        if value is None or value.data is None or value.data.size > _MOST_AXES or value.type.is_float:
            return None
        return [int(number) for number in value.data.reshape(-1)]

    def _is_free(self, name: str, places: _Places) -> bool:
        """Whether one of these axes of a value has a size that the file does not state."""
        value = self._value(name)
        if value is not None and value.is_constant and name not in self._producers:
            return False
        dims = self._dimensions.get(name)
        if dims is None:
            return True
        wanted = range(len(dims)) if places is None else (p for p in places if -len(dims) <= p < len(dims))
        return any(not isinstance(dims[place], int) for place in wanted)

    @cached_property
    def _producers(self) -> Mapping[str, NodeProto]:
        return {name: node for node in self._model.nodes for name in node.output}

    @cached_property
    def _dimensions(self) -> Mapping[str, Sequence[Dimension]]:
        return declared_dimensions(self._model.proto)
