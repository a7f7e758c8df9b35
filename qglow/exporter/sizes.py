"""Sizes that an ONNX model computes from the shapes of its inputs while it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from qglow.core.errors import UnsupportedError
from qglow.core.types import Array, Dimension
from qglow.exporter.proto import unique


class AmbiguityError(UnsupportedError):
    """More than one expression of the dimensions fits a size: exports for further sizes tell."""


@dataclass(frozen=True)
class Size:
    """The expression `factor * dimensions[0] * dimensions[1] ... + offset`."""

    factor: int
    dimensions: tuple[str, ...]
    offset: int = 0

    def __str__(self) -> str:
        factor = [] if self.factor == 1 else [str(self.factor)]
        offset = "" if not self.offset else f" {'+' if self.offset > 0 else '-'} {abs(self.offset)}"
        return "*".join([*factor, *self.dimensions]) + offset


@dataclass(frozen=True)
class Dimensions:
    """Named dimensions of the inputs, by input and axis, and their sizes in several exports of one graph."""

    inputs: Mapping[str, Sequence[Dimension]]
    sizes: Sequence[Mapping[str, int]]

    def fitting(self, sizes: Sequence[int | None]) -> Iterator[Size]:
        """Expressions of the dimensions that have these sizes, one for each export; None stands for any."""
        given = [(size, known) for size, known in zip(sizes, self.sizes, strict=True) if size is not None]
        open_ones = [name for name in self.sizes[0] if len({sizes[name] for sizes in self.sizes}) > 1]
        for count in (1, 2):
            for names in combinations_with_replacement(open_ones, count):
                pairs = [(size, int(np.prod([known[name] for name in names]))) for size, known in given]
                size, product = pairs[0]
                factor = size // product if product else 0
                if factor and all(size == factor * product for size, product in pairs):
                    yield Size(factor, names)
                elif count == 1 and len({size - product for size, product in pairs}) == 1:
                    yield Size(1, names, size - product)

    def tell(self, sizes: Sequence[int]) -> bool:
        """Whether exactly one expression of the dimensions has these sizes."""
        return len(list(self.fitting(sizes))) == 1

    def explain(self, size: Size) -> bool:
        """Whether that an expression fits is no chance: two exports determine a factor, or an offset."""
        return len(self.sizes) > 2 or (size.factor == 1 and not size.offset)

    def place(self, dimension: str) -> tuple[str, int]:
        """Input and axis where a dimension is found."""
        return next(
            (name, axis)
            for name, dimensions in self.inputs.items()
            for axis, found in enumerate(dimensions)
            if found == dimension
        )


@dataclass(frozen=True)
class ReadSize:
    """The size of a tensor of the model at an axis, times a factor and divided by a divisor of it."""

    tensor: str
    axis: int
    factor: int = 1
    divisor: int = 1


def constant_size(name: str, sizes: Sequence[int | None]) -> int | None:
    """The size that all exports have; None where they differ.

    Raises AmbiguityError where it matters in one of them alone.
    """
    given = [size for size in sizes if size is not None]
    if len(given) < 2:
        raise AmbiguityError(f"constant '{name}' has one size that tells nothing of others")
    return given[0] if len(set(given)) == 1 else None


class SizeNodes:
    """Nodes and constants that compute sizes, from shapes of a model's inputs or of its tensors.

    taken: names of the model's tensors.
    """

    def __init__(self, dimensions: Dimensions, taken: Iterable[str]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._dimensions = dimensions
        self._taken = set(taken)
        self._made: dict[Size | str | ReadSize, str] = {}

    def list_of(
        self,
        name: str,
        values: Sequence[Sequence[int | None]],
        known: Sequence[int | None] | None = None,
        read: Mapping[int, ReadSize] | None = None,
    ) -> str:
        """Name of a list of sizes, of which `values` has those of each export, and `known` states entries.

        None in `values` is a size that does not matter. read: entries that tensors of the model tell. Raises
        UnsupportedError where no expression fits, AmbiguityError where several do.
        """
        parts: list[str] = []
        numbers: list[int] = []
        read = read or {}
        for axis, sizes in enumerate(zip(*values, strict=True)):
            number = constant_size(name, sizes)
            if known is not None and known[axis] is not None:
                number = known[axis]
            if number is not None:
                numbers.append(number)
                continue
            if numbers:
                parts.append(self.constant(name, np.array(numbers, np.int64)))
                numbers = []
            parts.append(self._read(read[axis]) if axis in read else self._size(name, sizes))
        if numbers:
            parts.append(self.constant(name, np.array(numbers, np.int64)))
        if len(parts) == 1:
            return parts[0]
        return self.emit("Concat", parts, f"{name}__computed", axis=0)

    def tell(self, sizes: Sequence[int]) -> bool:
        """Whether exactly one expression of the dimensions has these sizes, and by no chance."""
        fitting = list(self._dimensions.fitting(sizes))
        return len(fitting) == 1 and self._dimensions.explain(fitting[0])

    def _size(self, name: str, sizes: Sequence[int | None]) -> str:
        """Name of a list of one number, computed from dimensions."""
        fitting = list(self._dimensions.fitting(sizes))
        if not fitting:
            raise UnsupportedError(f"constant '{name}' depends on shapes in no simple way")
        if len(fitting) > 1:
            raise AmbiguityError(f"constant '{name}' may be {' or '.join(map(str, fitting))}")
        size = fitting[0]
        if not self._dimensions.explain(size):
            raise AmbiguityError(f"constant '{name}' may be {size}, which another export has to confirm")
        if size not in self._made:
            result = self._dimension(size.dimensions[0])
            for dimension in size.dimensions[1:]:
                result = self.emit("Mul", [result, self._dimension(dimension)], f"{name}__product")
            for op_type, number, neutral in (("Mul", size.factor, 1), ("Add", size.offset, 0)):
                if number != neutral:
                    other = self.constant(name, np.array([number], np.int64))
                    result = self.emit(op_type, [result, other], f"{name}__size")
            self._made[size] = result
        return self._made[size]

    def _dimension(self, name: str) -> str:
        """Name of a list of one number, the size of a dimension."""
        if name not in self._made:
            source, axis = self._dimensions.place(name)
            self._made[name] = self.emit("Shape", [source], f"{source}__{axis}", start=axis, end=axis + 1)
        return self._made[name]

    def _read(self, size: ReadSize) -> str:
        """Name of a list of one number that a tensor of the model tells."""
        if size not in self._made:
            wanted, axis = f"{size.tensor}__{size.axis}", size.axis
            result = self.emit("Shape", [size.tensor], wanted, start=axis, end=axis + 1)
            for op_type, number in (("Mul", size.factor), ("Div", size.divisor)):
                if number != 1:
                    other = self.constant(wanted, np.array([number], np.int64))
                    result = self.emit(op_type, [result, other], wanted)
            self._made[size] = result
        return self._made[size]

    def fresh(self, wanted: str) -> str:
        """A name that no tensor has."""
        return unique(wanted, self._taken)

    def constant(self, wanted: str, data: Array) -> str:
        """Add a constant; returns its name."""
        name = self.fresh(wanted)
        self.constants.append(numpy_helper.from_array(np.asarray(data), name))
        return name

    def emit(self, op_type: str, inputs: Sequence[str], wanted: str, **attributes: Any) -> str:
        """Add a node of one output; returns the name of its result."""
        name = self.fresh(wanted)
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], name, **attributes))
        return name
