"""Search for experts of mixtures that exporters write one after the other, see `routed_experts`.

For each expert NonZero of a mask finds its rows, these are gathered, multiplied, weighted, and added back at
their places. https://onnx.ai/onnx/operators/ NonZero, ScatterElements
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from qglow.core.types import Array
from qglow.importer import elementwise, functions
from qglow.interchange.nodes import integer_attribute

_ALONE = frozenset({*elementwise.RULES, *functions.RULES, "Cast"})
"""Operators that compute each element of rows by itself, besides products with matrices."""
_FOLLOWED = frozenset({"Cast", "Expand"})
_MOST_READ = 8
"""Most elements of a constant that decides what a model means here."""


@dataclass(frozen=True)
class Expert:
    """One expert of a mixture: its rows, and what it makes of them before they are weighted."""

    rows: str
    result: str


@dataclass(frozen=True)
class Mixture:
    """Rows [T, K], their experts [T, k] and shares [T, k], and the sum [T, N] of what the experts make."""

    rows: str
    indices: str
    shares: str
    count: int
    result: str
    experts: tuple[Expert, ...]


class Search:
    """Search for mixtures among the nodes of a model."""

    def __init__(self, proto: ModelProto, nodes: Sequence[NodeProto]) -> None:
        self.producers = {name: node for node in nodes for name in node.output}
        self._stored = {tensor.name: tensor for tensor in proto.graph.initializer}
        self._nodes = nodes
        self._users: dict[str, list[NodeProto]] = {}
        for node in nodes:
            for name in node.input:
                self._users.setdefault(name, []).append(node)

    def mixture(self, hot: NodeProto) -> Mixture | None:
        """The mixture whose rows choose experts by a OneHot; None for others."""
        ranked = self._made(hot.input[0], "TopK") if hot.op_type == "OneHot" else None
        if ranked is None or hot.input[0] != ranked.output[1]:
            return None
        experts, k = self._number(hot.input[1]), self._number(ranked.input[1])
        if experts is None or k is None:
            return None
        values = self.array(hot.input[2])
        if values is None or values.tolist() != [0, 1] or integer_attribute(hot, "axis", -1) not in (-1, 2):
            return None
        places = self._places(hot.output[0])
        if sorted(places) != list(range(experts)):
            return None
        steps = {number: self._step(places[number]) for number in range(experts)}
        if any(step is None for step in steps.values()):
            return None
        known = [step for step in steps.values() if step is not None]
        result = self._chain([(base, end) for base, end, *_ in known])
        shared = {(rows, shares) for _, _, _, rows, shares in known}
        if result is None or len(shared) != 1:
            return None
        ((rows, shares),) = shared
        mixture = Mixture(rows, hot.input[0], shares, k, result, tuple(expert for _, _, expert, *_ in known))
        alike = all(self._alike(mixture.experts[0], expert) for expert in mixture.experts[1:])
        return mixture if alike else None

    def region(self, mixture: Mixture) -> Iterator[NodeProto]:
        """The nodes between what a mixture reads and its result."""
        waiting, seen = [mixture.result], {mixture.rows, mixture.indices, mixture.shares}
        while waiting:
            name = waiting.pop()
            node = self.producers.get(name)
            if name in seen or node is None:
                continue
            seen.add(name)
            yield node
            waiting += node.input

    # Parts of a mixture

    def _places(self, hot: str) -> dict[int, NodeProto]:
        """NonZero of the rows [k, T] of each expert, by its number."""
        found: dict[int, NodeProto] = {}
        for turned in self._users.get(hot, []):
            if turned.op_type != "Transpose" or _integers(turned, "perm") != [2, 1, 0]:
                continue
            for chosen in self._users.get(turned.output[0], []):
                number = self._number(chosen.input[1]) if chosen.op_type == "Gather" else None
                if number is None or integer_attribute(chosen, "axis", 0):
                    continue
                users = self._users.get(chosen.output[0], [])
                users = [u for user in users for u in self._behind_cast(user)]
                found.update((number, user) for user in users if user.op_type == "NonZero")
        return found

    def _behind_cast(self, node: NodeProto) -> list[NodeProto]:
        return self._users.get(node.output[0], []) if node.op_type == "Cast" else [node]

    def _step(self, places: NodeProto) -> tuple[str, str, Expert, str, str] | None:
        """Sums before and after an expert is added, the expert, the rows of all, and their shares."""
        scatter = self._scatter(places.output[0])
        if scatter is None:
            return None
        base, end = scatter.input[0], scatter.output[0]
        if _text(scatter, "reduction") != "add":
            users = self._users.get(end, [])
            if len(users) != 1 or users[0].op_type != "Add" or not self._is_zero(base):
                return None
            base = next((name for name in users[0].input if name != end), end)
            end = users[0].output[0]
        product = self._made(self._before(scatter.input[2]), "Mul")
        token = self._token(scatter.input[1])
        if product is None or token is None:
            return None
        for place in (0, 1):
            result, factor = product.input[place], product.input[1 - place]
            rows, shares = self._gathered(result, token), self._shares(factor, places.output[0], token)
            if rows is not None and shares is not None:
                return base, end, Expert(rows[0], result), rows[1], shares
        return None

    def _scatter(self, places: str) -> NodeProto | None:
        """The one ScatterElements at the rows that a NonZero found."""
        found = [
            node
            for node in self._nodes
            if node.op_type == "ScatterElements"
            and not integer_attribute(node, "axis", 0)
            and (token := self._token(node.input[1])) is not None
            and self._part(token) == (places, 1)
        ]
        return found[0] if len(found) == 1 else None

    def _token(self, name: str) -> str | None:
        """The rows that an index of ScatterElements is spread of."""
        spread = self._made(self._before(name), "Unsqueeze")
        return None if spread is None or self._number(spread.input[1]) != 1 else spread.input[0]

    def _part(self, name: str) -> tuple[str, int] | None:
        """The NonZero and the row of it that a value is: 0 for ranks of experts, 1 for rows."""
        node = self.producers.get(name)
        if node is None:
            return None
        if node.op_type == "Squeeze":
            return self._part(node.input[0])
        if node.op_type == "Gather" and not integer_attribute(node, "axis", 0):
            number = self._number(node.input[1])
            found = self._made(node.input[0], "NonZero")
            return None if found is None or number is None else (node.input[0], number)
        if (
            node.op_type != "Split"
            or integer_attribute(node, "axis", 0) not in (1, -1)
            or len(node.output) != 2
        ):
            return None
        turned = self._made(node.input[0], "Transpose")
        return None if turned is None else (turned.input[0], list(node.output).index(name))

    def _gathered(self, result: str, token: str) -> tuple[str, str] | None:
        """The rows of an expert that a result is computed of, and what they are gathered from."""
        leaves = set(self._leaves(result))
        if len(leaves) != 1:
            return None
        (rows,) = leaves
        node = self.producers.get(rows)
        while node is not None and node.op_type == "Reshape":
            node = self.producers.get(node.input[0])
        if node is None or node.op_type != "Gather" or node.input[1] != token:
            return None
        axis, source = integer_attribute(node, "axis", 0), self._made(node.input[0], "Unsqueeze")
        if axis == 0:
            return rows, node.input[0]
        whole = axis == 1 and source is not None and self._number(source.input[1]) == 0
        return (rows, source.input[0]) if whole and source is not None else None

    def _leaves(self, name: str) -> Iterator[str]:
        """Operands that are not constant, below nodes that compute elements alone or by matrices."""
        node = self.producers.get(name)
        if self.is_stored(name):
            return
        if (
            node is not None
            and node.op_type == "MatMul"
            and self.is_stored(node.input[1])
            or (
                node is not None
                and node.op_type == "Gemm"
                and _is_plain(node)
                and self.is_stored(node.input[1])
            )
        ):
            yield from self._leaves(node.input[0])
        elif node is not None and node.op_type in _ALONE:
            for operand in filter(None, node.input):
                yield from self._leaves(operand)
        else:
            yield name

    def _is_product(self, node: NodeProto) -> bool:
        """Whether a node multiplies rows by a constant matrix, perhaps with a constant bias."""
        plain = node.op_type == "MatMul" or (node.op_type == "Gemm" and _is_plain(node))
        return plain and all(self.is_stored(name) for name in node.input[1:])

    def _shares(self, name: str, places: str, token: str) -> str | None:
        """The shares [T, k] that a factor [n, 1] of an expert's rows is taken from, at rank and row."""
        node = self.producers.get(name)
        while node is not None and node.op_type in ("Reshape", "Unsqueeze"):
            node = self.producers.get(node.input[0])
        if node is None or node.op_type != "Gather" or integer_attribute(node, "axis", 0):
            return None
        place = self._made(node.input[1], "Add")
        if place is None:
            return None
        ranks = [operand for operand in place.input if self._part(operand) == (places, 0)]
        scaled = [m for operand in place.input if (m := self._made(operand, "Mul")) is not None]
        if len(ranks) != 1 or len(scaled) != 1 or token not in scaled[0].input:
            return None
        flat = self._made(node.input[0], "Flatten")
        source = None if flat is None else self._made(flat.input[0], "Unsqueeze")
        if source is None or flat is None or integer_attribute(flat, "axis", 1) != 2:
            return None
        return source.input[0] if self._number(source.input[1]) == 2 else None

    def _chain(self, steps: Sequence[tuple[str, str]]) -> str | None:
        """The last sum of steps, each from what was added up before; None where they are no chain from 0."""
        behind = dict(steps)
        first = behind.keys() - set(behind.values())
        if len(behind) != len(steps) or len(first) != 1:
            return None
        (name,) = first
        if not self._is_zero(name):
            return None
        for _ in steps:
            if name not in behind:
                return None
            name = behind[name]
        return name

    def _alike(self, one: Expert, other: Expert) -> bool:
        """Whether two experts compute the same with other matrices."""

        def same(left: str, right: str) -> bool:
            if left == one.rows or right == other.rows:
                return left == one.rows and right == other.rows
            if self.is_stored(left):
                if not self.is_stored(right) or self.dims(left) != self.dims(right):
                    return False
                values = self._values(left), self._values(right)
                return bool(np.prod(self.dims(left)) > 1) or np.array_equal(*values)
            a, b = self.producers[left], self.producers.get(right)
            if b is None or a.op_type != b.op_type or len(a.input) != len(b.input):
                return False
            if sorted(map(str, a.attribute)) != sorted(map(str, b.attribute)):
                return False
            return all(map(same, a.input, b.input))

        return same(one.result, other.result)

    # Constants

    def is_stored(self, name: str) -> bool:
        """Whether a value is an initializer or a constant."""
        return not name or name in self._stored or self._made(name, "Constant") is not None

    def dims(self, name: str) -> list[int]:
        """Shape of a constant."""
        tensor = self._tensor(name)
        return [] if tensor is None else list(tensor.dims)

    def array(self, name: str) -> Array | None:
        """A small constant; None for others."""
        tensor = self._tensor(name)
        if (
            tensor is None
            or np.prod(tensor.dims) > _MOST_READ
            or tensor.data_location == TensorProto.EXTERNAL
        ):
            return None
        return np.asarray(numpy_helper.to_array(tensor))

    def _values(self, name: str) -> Array:
        data = self.array(name)
        return np.zeros(0) if data is None else data

    def _tensor(self, name: str) -> TensorProto | None:
        node = self._made(name, "Constant")
        if node is None:
            return self._stored.get(name)
        return next((a.t for a in node.attribute if a.name == "value"), None)

    def _number(self, name: str) -> int | None:
        data = self.array(name)
        return None if data is None or data.size != 1 else int(data.reshape(-1)[0])

    def _is_zero(self, name: str) -> bool:
        node = self._made(name, "ConstantOfShape")
        if node is None:
            return False
        values = [numpy_helper.to_array(a.t) for a in node.attribute if a.name == "value"]
        return all(not np.any(value) for value in values)

    # Nodes

    def _made(self, name: str, kind: str) -> NodeProto | None:
        node = self.producers.get(name)
        return node if node is not None and node.op_type == kind else None

    def _before(self, name: str) -> str:
        """Name of a value before it is cast or spread."""
        while (node := self.producers.get(name)) is not None and node.op_type in _FOLLOWED:
            name = node.input[0]
        return name


def _is_plain(node: NodeProto) -> bool:
    """Whether a Gemm has rows on its left, and factors of 1."""
    factors = [a.f for a in node.attribute if a.name in ("alpha", "beta")]
    return all(factor == 1.0 for factor in factors) and not integer_attribute(node, "transA", 0)


def _integers(node: NodeProto, name: str) -> list[int]:
    return next((list(each.ints) for each in node.attribute if each.name == name), [])


def _text(node: NodeProto, name: str) -> str:
    return next((each.s.decode() for each in node.attribute if each.name == name), "")
