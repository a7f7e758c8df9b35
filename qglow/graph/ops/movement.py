"""Data movement that leaves elements out, repeats them or adds others. https://onnx.ai/onnx/operators/"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from qglow.core.types import Array, ElementType, TensorType
from qglow.graph.axes import AxisEffect, aligned_effect
from qglow.graph.operator import Policy, SameAs, register, require
from qglow.graph.ops.rules import (
    Arrays,
    Movement,
    Types,
    broadcast_shape,
    given,
    normal_axis,
    operand,
    parameters_of,
)
from qglow.graph.traits import AxisBorder
from qglow.numerics.quantize import quantize_by


@register
@dataclass(frozen=True)
class Slice(Movement):
    """Elements starts[i], starts[i] + steps[i], ... below ends[i] of every axis i.

    0 <= start <= end <= extent and step >= 1: importers resolve negative bounds.
    """

    name: ClassVar[str] = "Slice"
    operands: ClassVar[tuple[str, ...]] = ("x",)
    policy: ClassVar[Policy] = SameAs(0)

    rearranges: ClassVar[bool] = True

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    steps: tuple[int, ...]

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """ceil((end - start) / step) along every axis."""
        x = operand(inputs, 0, "x")
        rank = len(x.shape)
        counts = {len(self.starts), len(self.ends), len(self.steps)}
        require(counts == {rank}, f"starts, ends and steps need one entry for each of the {rank} axes of {x}")
        for extent, start, end, step in zip(x.shape, self.starts, self.ends, self.steps, strict=True):
            fits = 0 <= start <= end <= extent and step >= 1
            require(fits, f"{start}:{end}:{step} is no slice of an axis of {extent}")
        parts = zip(self.starts, self.ends, self.steps, strict=True)
        return (x.with_shape(tuple(-((start - end) // step) for start, end, step in parts)),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """numpy slicing."""
        parts = tuple(slice(*part) for part in zip(self.starts, self.ends, self.steps, strict=True))
        return (given(inputs, 0)[parts].copy(),)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """The same axis, which begins with `first_place`."""
        return AxisEffect(axis, cuts=True)

    def first_place(self, axis: int) -> int:
        """The start."""
        return self.starts[axis]

    def end_place(self, axis: int) -> int:
        """The end."""
        return self.ends[axis]

    def passes_through(self, inputs: Types) -> bool:
        """A slice of everything."""
        shape = operand(inputs, 0, "x").shape
        return not any(self.starts) and self.ends == shape and set(self.steps) <= {1}

    def transposed(self, perm: Sequence[int]) -> Self | str | None:
        """The operator with its entries at the axes before the transpose."""
        starts, ends, steps = (_moved(part, perm) for part in (self.starts, self.ends, self.steps))
        return replace(self, starts=starts, ends=ends, steps=steps)


def _moved(entries: tuple[int, ...], perm: Sequence[int]) -> tuple[int, ...]:
    """Entries of transposed axes, in the order of the axes before."""
    return tuple(entries[perm.index(axis)] for axis in range(len(perm)))


PAD_MODES = ("constant", "edge", "reflect", "wrap")


@register
@dataclass(frozen=True)
class Pad(Movement):
    """A border around x; `pads` gives the amounts before every axis, then those after.

    `mode` says of what: `value`, the outermost elements (edge), those inside of them mirrored
    (reflect) or those of the other side (wrap).
    """

    name: ClassVar[str] = "Pad"
    operands: ClassVar[tuple[str, ...]] = ("x",)
    policy: ClassVar[Policy] = SameAs(0)

    adds_values: ClassVar[bool] = True

    pads: tuple[int, ...]
    value: float = 0.0
    mode: str = "constant"

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """Every extent grown by both amounts."""
        x = operand(inputs, 0, "x")
        rank = len(x.shape)
        require(self.mode in PAD_MODES, f"mode '{self.mode}' is none of {', '.join(PAD_MODES)}")
        require(self.mode == "constant" or 0 not in x.shape, f"{x} has nothing to repeat around it")
        fits = len(self.pads) == 2 * rank and min(self.pads, default=0) >= 0
        require(fits, f"pads {list(self.pads)} do not fit {x}")
        return (x.with_shape(tuple(d + self.pads[i] + self.pads[rank + i] for i, d in enumerate(x.shape))),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numpy.pad."""
        x = given(inputs, 0)
        return (self._pad(x, np.asarray(self.value).astype(x.dtype)),)

    def evaluate_quantized(
        self, inputs: Arrays, input_types: Types, output_types: Sequence[TensorType]
    ) -> tuple[Array, ...]:
        """Pad like evaluate, with the quantized value."""
        quantization = parameters_of(input_types, 0)
        if quantization is None or quantization != output_types[0].quantization:
            return super().evaluate_quantized(inputs, input_types, output_types)
        return (self._pad(given(inputs, 0), quantize_by(np.array(self.value), quantization)),)

    @property
    def added_value(self) -> float | None:
        """`value`."""
        return self.value

    @property
    def axis_border(self) -> AxisBorder | None:
        """Its pads, where they are `value` and lie along one axis."""
        rank = len(self.pads) // 2
        axes = [axis for axis in range(rank) if self.pads[axis] or self.pads[rank + axis]]
        if self.mode != "constant" or len(axes) != 1:
            return None
        return AxisBorder(axes[0], self.pads[axes[0]], self.pads[rank + axes[0]], self.value)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """The same axis, where nothing is added along it."""
        rank = len(self.pads) // 2
        return None if self.pads[axis] or self.pads[rank + axis] else AxisEffect(axis)

    def passes_through(self, inputs: Types) -> bool:
        """A border of nothing."""
        return not any(self.pads)

    def transposed(self, perm: Sequence[int]) -> Self | str | None:
        """The operator with its amounts at the axes before the transpose."""
        before, after = self.pads[: len(perm)], self.pads[len(perm) :]
        return replace(self, pads=_moved(before, perm) + _moved(after, perm))

    def indices(self, x: tuple[int, ...]) -> list[tuple[int, Array]]:
        """Axes that grow, and the index that each place takes, for modes that repeat elements."""
        pairs = [(axis, (self.pads[axis], self.pads[len(x) + axis])) for axis in range(len(x))]
        return [(axis, self._repeated(np.arange(x[axis]), (pair,))) for axis, pair in pairs if any(pair)]

    def _pad(self, x: Array, value: Any) -> Array:
        amounts = tuple((self.pads[i], self.pads[x.ndim + i]) for i in range(x.ndim))
        if not amounts:
            return x.copy()
        if self.mode == "constant":
            return np.pad(x, amounts, constant_values=value)
        return self._repeated(x, amounts)

    def _repeated(self, x: Array, amounts: tuple[tuple[int, int], ...]) -> Array:
        if self.mode == "edge":
            return np.pad(x, amounts, mode="edge")
        return np.pad(x, amounts, mode="reflect" if self.mode == "reflect" else "wrap")


@register
@dataclass(frozen=True)
class Expand(Movement):
    """x broadcast to a fully known shape, as numpy does."""

    name: ClassVar[str] = "Expand"
    operands: ClassVar[tuple[str, ...]] = ("x",)
    policy: ClassVar[Policy] = SameAs(0)
    states_shape: ClassVar[bool] = True

    shape: tuple[int, ...]

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """`shape`."""
        x = operand(inputs, 0, "x")
        require(broadcast_shape(x.shape, self.shape) == self.shape, f"{x} does not expand to {self.shape}")
        return (x.with_shape(self.shape),)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """The axis at the same place from the end."""
        return aligned_effect(axis, operand(inputs, 0, "x").shape, self.shape)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numpy.broadcast_to."""
        return (np.array(np.broadcast_to(given(inputs, 0), self.shape)),)


@register
@dataclass(frozen=True)
class Gather(Movement):
    """Slices of x along an axis, chosen by integer indices; negative ones count from the end."""

    name: ClassVar[str] = "Gather"
    operands: ClassVar[tuple[str, ...]] = ("x", "indices")
    policy: ClassVar[Policy] = SameAs(0)
    plain_operands: ClassVar[tuple[str, ...]] = ("indices",)

    axis: int = 0

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The axis gives way to the axes of the indices."""
        x, indices = operand(inputs, 0, "x"), operand(inputs, 1, "indices")
        integers = (ElementType.INT32, ElementType.INT64)
        require(indices.element in integers, f"operand indices is {indices}, it must be integers")
        axis = normal_axis(self.axis, len(x.shape))
        return (x.with_shape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numpy.take. Raises IndexError for an index that is out of range."""
        return (np.asarray(np.take(given(inputs, 0), given(inputs, 1), self.axis)),)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """Axes of the indices stand in place of the one that they choose from.

        Indices of places without effect have to be some that are in range.
        """
        x, indices = operand(inputs, 0, "x").shape, operand(inputs, 1, "indices").shape
        chosen = normal_axis(self.axis, len(x))
        if index == 1:
            return AxisEffect(chosen + axis, neutral=0.0)
        if axis == chosen:
            return AxisEffect(chosen=True)
        return AxisEffect(axis if axis < chosen else axis + len(indices) - 1)

    def elements_from(self, count: int) -> tuple[int, ...]:
        """The first operand: some, as often as their indices come."""
        return (0,)

    @property
    def looks_up_rows(self) -> bool:
        """Whether indices are those of the first axis."""
        return self.axis == 0


@register
@dataclass(frozen=True)
class GatherElements(Movement):
    """Elements of x along an axis, one for each index; negative ones count from the end."""

    name: ClassVar[str] = "GatherElements"
    operands: ClassVar[tuple[str, ...]] = ("x", "indices")
    policy: ClassVar[Policy] = SameAs(0)
    plain_operands: ClassVar[tuple[str, ...]] = ("indices",)

    axis: int = 0

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The shape of the indices, which no axis of x but the chosen one may fall short of."""
        x, indices = operand(inputs, 0, "x"), operand(inputs, 1, "indices")
        integers = (ElementType.INT32, ElementType.INT64)
        require(indices.element in integers, f"operand indices is {indices}, it must be integers")
        require(len(indices.shape) == len(x.shape), f"indices {indices} and x {x} differ in rank")
        axis = normal_axis(self.axis, len(x.shape))
        pairs = zip(indices.shape, x.shape, strict=True)
        fits = all(few <= many for i, (few, many) in enumerate(pairs) if i != axis)
        require(fits, f"indices {indices} are larger than x {x}")
        return (x.with_shape(indices.shape),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numpy.take_along_axis. Raises IndexError for an index that is out of range."""
        x, indices = given(inputs, 0), given(inputs, 1)
        axis = normal_axis(self.axis, x.ndim)
        part = tuple(slice(None) if i == axis else slice(0, n) for i, n in enumerate(indices.shape))
        return (np.take_along_axis(x[part], indices, axis),)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """All axes stay, and those of x but the chosen one are apart if the indices have all their places.

        Indices of places without effect have to be some that are in range.
        """
        x, indices = operand(inputs, 0, "x").shape, operand(inputs, 1, "indices").shape
        if index == 1:
            return AxisEffect(axis, neutral=0.0)
        if axis == normal_axis(self.axis, len(x)):
            return AxisEffect(chosen=True)
        return AxisEffect(axis) if x[axis] == indices[axis] else None

    def elements_from(self, count: int) -> tuple[int, ...]:
        """The first operand: some, as often as their indices come."""
        return (0,)
