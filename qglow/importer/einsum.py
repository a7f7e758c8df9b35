"""Import of Einsum as transposes and matrix products. https://onnx.ai/onnx/operators/onnx__Einsum.html"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from qglow.graph.graph import Value
from qglow.graph.ops.linear import MatMul
from qglow.graph.ops.movement import Slice
from qglow.graph.ops.reduce import ReduceSum
from qglow.graph.ops.shape import Reshape, Transpose
from qglow.importer.node import ImportNode, ImportRule


@dataclass(frozen=True)
class _Term:
    """An operand whose axes have labels."""

    value: Value
    labels: str

    def sizes(self) -> dict[str, int]:
        return dict(zip(self.labels, self.value.type.shape, strict=True))


class _Contraction:
    """Operators that compute one equation. Labels are unique within every operand but for `diagonal`."""

    def __init__(self, node: ImportNode) -> None:
        self._node = node
        self._parts = 0

    def _part(self) -> str:
        self._parts += 1
        return f"step{self._parts}"

    def diagonal(self, term: _Term) -> _Term:
        """Keep the elements that have one index for all axes of a label; other terms stay as they are."""
        value, labels = term.value, term.labels
        while repeated := [label for label in labels if labels.count(label) > 1]:
            pair = [i for i, label in enumerate(labels) if label == repeated[0]][:2]
            rest = [i for i in range(len(labels)) if i not in pair]
            size = value.type.shape[pair[0]]
            value = self._node.emit(Transpose(perm=(*rest, *pair)), value, part=self._part())
            outer = value.type.shape[:-2]
            value = self._node.emit(Reshape(shape=(*outer, size * size)), value, part=self._part())
            zeros, steps = (0,) * (len(outer) + 1), (*(1,) * len(outer), size + 1)
            value = self._node.emit(Slice(zeros, value.type.shape, steps), value, part=self._part())
            labels = "".join(labels[i] for i in (*rest, pair[0]))
        return _Term(value, labels)

    def sum_over(self, term: _Term, labels: str) -> _Term:
        """Sum over the axes of some labels."""
        axes = tuple(i for i, label in enumerate(term.labels) if label in labels)
        if not axes:
            return term
        value = self._node.emit(ReduceSum(axes, False), term.value, part=self._part())
        return _Term(value, "".join(label for label in term.labels if label not in labels))

    def ordered(self, term: _Term, labels: str) -> _Term:
        """Bring axes into an order."""
        if labels == term.labels:
            return term
        perm = tuple(term.labels.index(label) for label in labels)
        return _Term(self._node.emit(Transpose(perm=perm), term.value, part=self._part()), labels)

    def product(self, left: _Term, right: _Term, kept: str) -> _Term:
        """Multiply two terms and sum over the labels that nothing after them needs."""
        left = self.sum_over(left, "".join(set(left.labels) - set(right.labels) - set(kept)))
        right = self.sum_over(right, "".join(set(right.labels) - set(left.labels) - set(kept)))
        both = [label for label in left.labels if label in right.labels]
        batch = "".join(label for label in both if label in kept)
        summed = "".join(label for label in both if label not in kept)
        rows = "".join(label for label in left.labels if label not in both)
        columns = "".join(label for label in right.labels if label not in both)
        one = self._matrix(self.ordered(left, batch + rows + summed), batch, rows, summed)
        other = self._matrix(self.ordered(right, batch + summed + columns), batch, summed, columns)
        value = self._node.emit(MatMul(), one, other, part=self._part())
        sizes = left.sizes() | right.sizes()
        shape = tuple(sizes[label] for label in batch + rows + columns)
        value = self._node.emit(Reshape(shape=shape), value, part=self._part())
        return _Term(value, batch + rows + columns)

    def _matrix(self, term: _Term, batch: str, rows: str, columns: str) -> Value:
        sizes = term.sizes()
        shape = tuple(math.prod(sizes[label] for label in labels) for labels in (batch, rows, columns))
        # Without a batch it is a plain matrix, so that a constant one is a weight.
        shape = shape if batch else shape[1:]
        return self._node.emit(Reshape(shape=shape), term.value, part=self._part())


def import_einsum(node: ImportNode) -> None:
    """Import Einsum; products go from left to right."""
    given, output = _terms(node)
    work = _Contraction(node)
    terms = [work.diagonal(term) for term in given]
    result = terms[0]
    for number, term in enumerate(terms[1:], start=2):
        needed = output + "".join(later.labels for later in terms[number:])
        result = work.product(result, term, needed)
    result = work.sum_over(result, "".join(set(result.labels) - set(output)))
    node.emit(Transpose(perm=tuple(result.labels.index(label) for label in output)), result.value)


def _terms(node: ImportNode) -> tuple[list[_Term], str]:
    """Operands with their labels, and the labels of the result."""
    equation = node.string("equation", "").replace(" ", "")
    inputs, arrow, output = equation.partition("->")
    labels = inputs.split(",")
    node.require(len(labels) == len(node.inputs), f"equation '{equation}' for {len(node.inputs)} operands")
    ranks = [node.rank(index) for index in range(len(labels))]
    if "..." in equation:
        labels, output = _without_dots(node, labels, output, ranks, bool(arrow))
    if not arrow:
        counts = Counter("".join(labels))
        output = output + "".join(sorted(label for label in counts if counts[label] == 1 and label.isalpha()))
    sizes: dict[str, int] = {}
    for index, text in enumerate(labels):
        shape = node.kind(index).shape
        node.require(len(text) == len(shape), f"'{text}' in '{equation}' names {len(shape)} dimensions")
        for label, size in zip(text, shape, strict=True):
            node.require(sizes.setdefault(label, size) == size, f"sizes of '{label}' in '{equation}' differ")
    known = set(output) <= set(sizes) and len(set(output)) == len(output)
    node.require(known, f"the result of '{equation}' has unknown or repeated labels")
    return [_Term(node.value(index), text) for index, text in enumerate(labels)], output


def _without_dots(
    node: ImportNode, labels: Sequence[str], output: str, ranks: Sequence[int], stated: bool
) -> tuple[list[str], str]:
    """Replace the dots by digits, which are no labels. Their sizes have to be equal in all operands."""
    hidden = {rank - len(text) + 3 for text, rank in zip(labels, ranks, strict=True) if "..." in text}
    node.require(len(hidden) == 1 and min(hidden) in range(10), "'...' stands for differing dimensions")
    digits = "0123456789"[: hidden.pop()]
    result = output.replace("...", digits) if stated else digits
    return [text.replace("...", digits) for text in labels], result


RULES: dict[str, ImportRule] = {"Einsum": ImportRule(import_einsum, newest=28)}
