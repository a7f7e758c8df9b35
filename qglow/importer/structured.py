"""Control flow that data decides: nodes with regions, where rounds and branches have equal static types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, NodeProto, helper

from qglow.core.errors import ModelError, UnsupportedError
from qglow.core.types import TensorType
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import Operator, OperatorTypeError
from qglow.graph.ops.control import COUNT, FLAG, If, Loop
from qglow.graph.ops.shape import Reshape
from qglow.importer.control import Importing, Open, body_of, import_body, is_control, label_of, listed
from qglow.importer.counting import provable_rounds
from qglow.importer.node import CannotImport


@dataclass(frozen=True)
class _Region:
    """A body as a graph, and the values outside of it that its last inputs stand for."""

    graph: Graph
    captured: list[Value]


class StructuredFlow:
    """If, Loop and Scan whose conditions or counts are computed, or whose rounds are too many to unroll."""

    def __init__(self, importing: Importing) -> None:
        self._importing = importing

    def build(self, proto: NodeProto) -> bool:
        """Import a node with its bodies as regions; False, with nothing changed, where that is impossible."""
        if not is_control(proto):
            return False
        act = {"If": self._branch, "Loop": self._loop, "Scan": self._scan}[proto.op_type]
        try:
            with self._importing.attempt():
                act(proto)
        except (Open, CannotImport, OperatorTypeError, ModelError, UnsupportedError):
            return False
        return True

    def _branch(self, proto: NodeProto) -> None:
        condition = self._scalar(proto, proto.input[0], FLAG)
        first, second = (
            self._region(proto, body_of(proto, name), {}, [], name=name)
            for name in ("then_branch", "else_branch")
        )
        captured = list(dict.fromkeys([*first.captured, *second.captured]))
        for region in (first, second):
            self._widen(region, captured)
        results = [value.type for value in first.graph.outputs]
        if results != [value.type for value in second.graph.outputs]:
            raise Open
        self._place(proto, If(first.graph, second.graph), [condition, *captured], proto.output)

    def _loop(self, proto: NodeProto) -> None:
        limit, start, *carried = [*proto.input, "", ""][: max(len(proto.input), 2)]
        body, count = body_of(proto, "body"), len(carried)
        if len(body.input) != 2 + count or len(proto.output) < count or len(body.output) < 1 + count:
            raise Open
        most, counted = self._limit(proto, limit)
        condition = self._first_condition(proto, start)
        goes = self._importing.fresh(f"{label_of(proto)}__go")
        self._importing.bind(goes, np.array(True))
        bound, moving = {body.input[1].name: goes}, list[int]()
        for index, name in enumerate(carried):
            if _passes_on(body, body.input[2 + index].name, body.output[1 + index].name):
                bound[body.input[2 + index].name] = name
            else:
                moving.append(index)
        values = self._plain_values([carried[index] for index in moving])
        kinds = [COUNT, *(value.type for value in values)]
        names = [body.input[0].name, *(body.input[2 + index].name for index in moving)]
        kept = [0, *(1 + index for index in moving), *range(1 + count, len(body.output))]
        region = self._region(proto, body, bound, list(zip(names, kinds, strict=True)), kept)
        operator = self._loop_operator(region.graph, values, most, counted is None and condition is None)
        outputs = [*(proto.output[index] for index in moving), *proto.output[count:]]
        self._place(proto, operator, [counted, condition, *values, *region.captured], outputs)
        for index in range(count):
            if index not in moving and proto.output[index]:
                self._importing.add(helper.make_node("Identity", [carried[index]], [proto.output[index]]))

    def _first_condition(self, proto: NodeProto, name: str) -> Value | None:
        """The condition before the first round; None where it holds."""
        value = self._importing.value(name) if name else None
        if not name:
            return None
        if value is not None and value.data is not None:
            if not bool(value.data.reshape(-1)[:1].all()):
                raise Open
            return None
        return self._scalar(proto, name, FLAG)

    @staticmethod
    def _loop_operator(body: Graph, starts: Sequence[Value], most: int | None, begins: bool) -> Loop:
        """The loop of a body that gives first whether there is another round.

        begins: whether there is a first round unless `most` is 0.
        """
        stays = body.outputs[0]
        conditional = stays.data is None
        if stays.data is not None and not bool(stays.data.reshape(-1).all()):
            most = 1 if most is None else min(most, 1)
        rounds = provable_rounds(body, starts, most) if begins and conditional else None
        if rounds is not None:
            most, conditional = rounds, False
        if not conditional:
            body.outputs = body.outputs[1:]
        rows = len(body.outputs) - int(conditional) - len(starts)
        return Loop(
            body, rounds=most, carried=len(starts), collected=(False,) * rows, conditional=conditional
        )

    def _scan(self, proto: NodeProto) -> None:
        """Import a Scan of opset 9 and later; slices along other axes than the first are transposed."""
        body, settings = body_of(proto, "body"), {a.name: list(a.ints) for a in proto.attribute}
        count = next(int(a.i) for a in proto.attribute if a.name == "num_scan_inputs")
        first = len(proto.input) - count
        if len(body.input) != len(proto.input):
            raise Open  # opset 8 had batches
        axes, back = (listed(settings, f"scan_input_{what}", count) for what in ("axes", "directions"))
        states = self._plain_values(proto.input[:first])
        turned = [self._first_axis(p, axis) for p, axis in zip(proto.input[first:], axes, strict=True)]
        sources = self._plain_values(turned)
        sizes = {value.type.shape[0] for value in sources}
        if len(sizes) != 1:
            raise Open
        kinds = [*(v.type for v in states), *(v.type.with_shape(v.type.shape[1:]) for v in sources)]
        given = list(zip([value.name for value in body.input], kinds, strict=True))
        number = self._importing.fresh(f"{label_of(proto)}__round")
        region = self._region(proto, body, {}, [(number, COUNT), *given])
        more = len(proto.output) - first
        axes, ends = (listed(settings, f"scan_output_{what}", more) for what in ("axes", "directions"))
        operator = Loop(
            region.graph,
            rounds=sizes.pop(),
            carried=first,
            scanned=tuple(map(bool, back)),
            collected=tuple(map(bool, ends)),
        )
        results = list(proto.output)
        for index, axis in enumerate(axes, first):
            if axis and results[index]:
                results[index] = self._importing.fresh(f"{results[index]}__rows")
        self._place(proto, operator, [None, None, *states, *sources, *region.captured], results)
        for name, output, axis in zip(results[first:], proto.output[first:], axes, strict=True):
            if name != output:
                self._move_axis(name, output, 0, axis)

    def _limit(self, proto: NodeProto, name: str) -> tuple[int | None, Value | None]:
        """The most rounds as a constant, and the value that is the most rounds."""
        value = self._importing.value(name) if name else None
        if not name:
            return None, None
        if value is not None and value.data is not None:
            return max(int(value.data.reshape(())), 0), None
        return None, self._scalar(proto, name, COUNT)

    def _scalar(self, proto: NodeProto, name: str, kind: TensorType) -> Value:
        """A value of one element as a scalar."""
        value = self._importing.value(name)
        if value is None or value.type.element is not kind.element or value.type.size != 1:
            raise Open
        if value.type.shape == () and not value.is_constant:
            return value
        return self._importing.view(proto).emit(Reshape(()), value, part="scalar")

    def _plain_values(self, names: Sequence[str]) -> list[Value]:
        values = [self._importing.value(name) for name in names]
        found = [value for value in values if value is not None]
        if len(found) < len(names) or not all(map(self._importing.is_plain, found)):
            raise Open
        return found

    def _first_axis(self, name: str, axis: int) -> str:
        """The name of a value with one of its axes first."""
        value = self._importing.value(name)
        if value is None or not -len(value.type.shape) <= axis < len(value.type.shape):
            raise Open
        if axis % len(value.type.shape) == 0:
            return name
        moved = self._importing.fresh(f"{name}__slices")
        self._move_axis(name, moved, axis, 0)
        return moved

    def _move_axis(self, name: str, result: str, source: int, target: int) -> None:
        value = self._importing.value(name)
        if value is None:
            raise Open
        rank = len(value.type.shape)
        if not (-rank <= source < rank and -rank <= target < rank):
            raise Open
        order = [axis for axis in range(rank) if axis != source % rank]
        order.insert(target % rank, source % rank)
        self._importing.add(helper.make_node("Transpose", [name], [result], perm=order))

    def _region(
        self,
        proto: NodeProto,
        body: GraphProto,
        bound: Mapping[str, str],
        given: Sequence[tuple[str, TensorType]],
        kept: Sequence[int] | None = None,
        name: str = "body",
    ) -> _Region:
        """Import a body as a graph.

        bound: names of its inputs that others stand for. given: its inputs. kept: numbers of its outputs that
        are wanted; None for all.
        """
        importing, label = self._importing, label_of(proto)
        inputs, names = list[Value](), dict(bound)
        for old, kind in given:
            names[old] = importing.fresh(f"{label}__{old}")
            inputs.append(Value(names[old], kind))
            importing.place(inputs[-1])
        with importing.scope() as nodes:
            found = import_body(importing, body, names, proto)
            results = [importing.value(found[n]) for n in (range(len(found)) if kept is None else kept)]
            outputs = [value for value in results if value is not None]
            if len(outputs) < len(results) or not all(map(importing.is_plain, outputs)):
                raise Open
            region = self._isolated(f"{label}.{name}", inputs, nodes, outputs)
        if not all(map(importing.is_plain, region.captured)):
            raise Open
        return region

    def _isolated(
        self, name: str, inputs: Sequence[Value], nodes: Sequence[Node], outputs: Sequence[Value]
    ) -> _Region:
        """A graph that reads constants of its own, and inputs in place of other values from outside."""
        inside = {*inputs, *(value for node in nodes for value in node.outputs)}
        twins: dict[Value, Value] = {}

        def own(value: Value) -> Value:
            if value in inside:
                return value
            if value not in twins:
                twins[value] = Value(self._importing.fresh(value.name), value.type, value.data)
            return twins[value]

        for node in nodes:
            node.inputs = [None if value is None else own(value) for value in node.inputs]
        results = [own(value) for value in outputs]
        captured = [value for value in twins if not value.is_constant]
        whole = [*inputs, *(twins[value] for value in captured)]
        return _Region(Graph(name, whole, results, nodes), captured)

    def _widen(self, region: _Region, captured: Sequence[Value]) -> None:
        """Let a region, all of whose inputs are captured, take all of these values in their order."""
        places = dict(zip(region.captured, region.graph.inputs, strict=True))
        region.graph.inputs = [
            places.get(value) or Value(self._importing.fresh(value.name), value.type) for value in captured
        ]

    def _place(
        self,
        proto: NodeProto,
        operator: Operator,
        operands: Sequence[Value | None],
        outputs: Sequence[str],
    ) -> None:
        """Add the node, and name its results."""
        kinds = operator.infer([None if value is None else value.type for value in operands])
        if len(outputs) > len(kinds):
            raise Open
        given = [*outputs, *([""] * (len(kinds) - len(outputs)))]
        label = label_of(proto)
        names = [output or self._importing.fresh(f"{label}__result{n}") for n, output in enumerate(given)]
        results = [Value(name, kind) for name, kind in zip(names, kinds, strict=True)]
        self._importing.append(Node(self._importing.view(proto).name, operator, operands, results))
        for value in results:
            self._importing.place(value)


def _passes_on(body: GraphProto, given: str, result: str) -> bool:
    """Whether a result of a body is what it is given under this name, perhaps through Identity."""
    sources = {node.output[0]: node.input[0] for node in body.node if node.op_type == "Identity"}
    for _ in range(len(sources)):
        result = sources.get(result, result)
    return result == given
