"""Experts of mixtures, which exporters write one after the other: products of the rows that chose them.

PyTorch's older exporter unrolls the loop of transformers' mixtures (Qwen3-MoE, as optimum has it), by NonZero
for each expert. Sizes that data decides have no place in a program: here each row meets the matrices of its
own experts, which a Gather chooses. https://onnx.ai/onnx/operators/ NonZero, Gather
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, helper

from qglow.importer.mixtures import Mixture, Search
from qglow.interchange.nodes import integer_attribute, outer_names

OLDEST = 13
"""Operator set from which on axes of ReduceSum and Unsqueeze are inputs."""


def with_routed_experts(proto: ModelProto, nodes: Sequence[NodeProto], opset: int) -> ModelProto:
    """The model with mixtures whose rows have matrices of their own; the model itself where it has none.

    nodes: the model's, in topological order.
    """
    if opset < OLDEST or not any(node.op_type == "OneHot" for node in nodes):
        return proto
    search = Search(proto, nodes)
    mixtures = [found for node in nodes if (found := search.mixture(node)) is not None]
    if not mixtures:
        return proto
    changed = ModelProto()
    changed.CopyFrom(proto)
    made = {mixture.result: RoutedNodes(search, mixture).nodes() for mixture in mixtures}
    old = {id(node) for mixture in mixtures for node in search.region(mixture)}
    kept: list[NodeProto] = []
    for node in nodes:
        new = next((made[name] for name in node.output if name in made), None)
        kept += [node] if new is None else new
    reads = Counter(value.name for value in proto.graph.output)
    reads.update(name for node in kept for name in outer_names(node))
    alive: list[NodeProto] = []
    for node in reversed(kept):
        if id(node) in old and not any(reads[name] for name in node.output):
            reads.subtract(outer_names(node))
        else:
            alive.append(node)
    del changed.graph.node[:]
    changed.graph.node.extend(alive[::-1])
    return changed


@dataclass
class RoutedNodes:
    """Writer of the nodes of a mixture whose rows have matrices of their own, [T * k, 1, K]."""

    search: Search
    mixture: Mixture
    _made: list[NodeProto] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)

    def nodes(self) -> list[NodeProto]:
        """All of them; the last one gives the mixture's result."""
        mixture, count = self.mixture, self.mixture.count
        one, flat = self._constant("one", [1]), self._constant("flat", [-1])
        self._indices = self._add("Reshape", mixture.indices, flat)
        single, first = self._add("Unsqueeze", mixture.rows, one), mixture.experts[0]
        spread = self._add("Expand", single, self._constant("times", [1, count, 1]))
        self._names[first.rows] = self._add("Unsqueeze", self._add("Flatten", spread, axis=2), one)
        found = self._add("Squeeze", self._expert(first.result), one)
        shape = self._add("Concat", self._add("Shape", mixture.indices), flat, axis=0)
        shares = self._add("Unsqueeze", mixture.shares, self._constant("two", [2]))
        weighted = self._add("Mul", self._add("Reshape", found, shape), shares)
        name, operands = f"{mixture.result}.sum", [weighted, one]
        self._made.append(helper.make_node("ReduceSum", operands, [mixture.result], name, keepdims=0))
        return self._made

    def _expert(self, name: str) -> str:
        """Write what experts make of their rows, as the first of them does."""
        if name in self._names or self.search.is_stored(name):
            return self._names.get(name, name)
        node = self.search.producers[name]
        found = self._product(node) if node.op_type in ("MatMul", "Gemm") else self._alone(node)
        self._names[name] = found
        return found

    def _product(self, node: NodeProto) -> str:
        """The product of rows with the matrices of their experts, plus biases."""
        rows, turned = self._expert(node.input[0]), integer_attribute(node, "transB", 0) == 1
        found = self._add("MatMul", rows, self._chosen(node, 1, turned))
        self._made[-1].name = node.name or found
        if len(node.input) > 2 and node.input[2]:
            found = self._add("Add", found, self._chosen(node, 2))
        return found

    def _alone(self, node: NodeProto) -> str:
        """Write a node that computes each element by itself, of rows and of vectors of experts."""
        operands = [
            self._chosen(node, place) if self._differs(operand) else self._expert(operand)
            for place, operand in enumerate(node.input)
        ]
        copied, found = NodeProto(), f"{self.mixture.result}.{len(self._made)}"
        copied.CopyFrom(node)
        del copied.input[:], copied.output[:]
        copied.input.extend(operands)
        copied.output.append(found)
        self._made.append(copied)
        return found

    def _differs(self, name: str) -> bool:
        """Whether an operand is a vector of each expert's own."""
        return self.search.is_stored(name) and bool(np.prod(self.search.dims(name)) > 1)

    def _chosen(self, node: NodeProto, place: int, turned: bool = False) -> str:
        """The constants of the experts of rows, at this operand of a node of the first one."""
        axis = self._constant("front", [0])
        own = [self._add("Unsqueeze", name, axis) for name in self._twins(node, place)]
        whole = self._add("Concat", *own, axis=0)
        if turned:
            whole = self._add("Transpose", whole, perm=[0, 2, 1])
        found = self._add("Gather", whole, self._indices, axis=0)
        if len(self.search.dims(node.input[place])) == 1:
            found = self._add("Unsqueeze", found, self._constant("one", [1]))
        return found

    def _twins(self, node: NodeProto, place: int) -> Iterator[str]:
        """The constant of each expert that stands at this operand of a node of the first one."""
        first, *others = self.mixture.experts
        yield node.input[place]
        for expert in others:
            yield next(self._constants_at(first.result, expert.result, node, place))

    def _constants_at(self, own: str, other: str, node: NodeProto, place: int) -> Iterator[str]:
        """Operands below `other` that stand where `node` has one below `own`."""
        one, twin = self.search.producers.get(own), self.search.producers.get(other)
        if one is None or twin is None or own == self.mixture.experts[0].rows:
            return
        if one is node:
            yield twin.input[place]
            return
        for left, right in zip(one.input, twin.input, strict=True):
            if not self.search.is_stored(left):
                yield from self._constants_at(left, right, node, place)

    def _constant(self, part: str, values: list[int]) -> str:
        name = f"{self.mixture.result}.{part}"
        if name not in self._names:
            self._names[name] = name
            self._made.append(helper.make_node("Constant", [], [name], name, value_ints=values))
        return name

    def _add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{self.mixture.result}.{len(self._made)}"
        self._made.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name
