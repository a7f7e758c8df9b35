"""Traits that a pass may ask of an operator, whatever its class is.

Traits are promises that an operator's class declares beside its meaning. A pass asks for the trait that it
relies on, never for a class by name, so that a new operator takes part in every pass by its declaration
alone. Each default promises nothing: a pass leaves an operator that declares no traits as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from qglow.core.types import Array, Shape, TensorType
from qglow.graph.axes import AxisEffect, aligned_effect
from qglow.host.nodes import HostedNodes
from qglow.numerics.windows import Pads, Pair

Types = Sequence[TensorType | None]
Bounds = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Conversion:
    """A change of the way in which reals are stored: whether the operand, and the result, are integers."""

    takes_integers: bool
    gives_integers: bool


@dataclass(frozen=True, slots=True)
class BlockForm:
    """Weights as integers of `bits` bits in blocks of `block` along K, each with a scale in every column."""

    bits: int
    block: int


@dataclass(frozen=True, slots=True)
class Filters:
    """Layout of the weights of an operator that accumulates.

    Output channels lie along axis `outputs` of the weights, the input channels that each of them reads
    along axis `inputs`; all further axes are taps. Output channels and input channels are divided into
    `groups`, and each group reads its own. Channels lie along axis 1 of the operand and of the result.
    """

    outputs: int
    inputs: int
    groups: int = 1

    def along_outputs(self, vector: Array, rank: int) -> Array:
        """Reshape a number for each output channel so that it broadcasts to weights of `rank` axes."""
        return vector.reshape(tuple(-1 if axis == self.outputs else 1 for axis in range(rank)))

    def along_inputs(self, vector: Array, weights: Shape) -> Array:
        """Reshape a number for each input channel of all groups so that it broadcasts to `weights`."""
        if self.groups == 1:
            return vector.reshape(tuple(-1 if axis == self.inputs else 1 for axis in range(len(weights))))
        own = np.repeat(vector.reshape(self.groups, -1), weights[self.outputs] // self.groups, axis=0)
        shape = [1] * len(weights)
        shape[self.outputs], shape[self.inputs] = weights[self.outputs], weights[self.inputs]
        return (own if self.outputs < self.inputs else own.T).reshape(shape)

    def rows(self, weights: Array) -> Array:
        """[G, O/G, I/G, taps]: the filters of each group, for each of its output and input channels."""
        ordered = np.moveaxis(weights, (self.outputs, self.inputs), (0, 1))
        outputs, inputs, *taps = ordered.shape
        return ordered.reshape(self.groups, outputs // self.groups, inputs, math.prod(taps))

    def weights(self, rows: Array, shape: Shape) -> Array:
        """The inverse of `rows`: weights of this shape, in row-major order."""
        moved = [shape[self.outputs], shape[self.inputs]]
        moved += [extent for axis, extent in enumerate(shape) if axis not in (self.outputs, self.inputs)]
        ordered = np.moveaxis(rows.reshape(moved), (0, 1), (self.outputs, self.inputs))
        return np.ascontiguousarray(ordered)


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """A window over the pixels of [N, C, H, W]; `pads` is (top, left, bottom, right)."""

    kernel: Pair
    strides: Pair
    pads: Pads
    dilations: Pair

    def places(self, axis: int) -> tuple[int, int]:
        """Places of padding less those of one window, along axis 2 or 3 of the image, and the stride."""
        reach = self.dilations[axis - 2] * (self.kernel[axis - 2] - 1)
        return self.pads[axis - 2] + self.pads[axis] - reach - 1, self.strides[axis - 2]

    def sees_image(self) -> bool:
        """Whether the padding is smaller than the window on each side."""
        reach = [dilation * (size - 1) for dilation, size in zip(self.dilations, self.kernel, strict=True)]
        return all(max(self.pads[axis], self.pads[axis + 2]) <= reach[axis] for axis in (0, 1))


@dataclass(frozen=True, slots=True)
class ImageBorder:
    """A border of equal numbers around an image [N, C, H, W], and the names that messages need.

    pads: (top, left, bottom, right). value: the number. least: no element of the image is below it.
    source: the node that adds the border. image: the value without it.
    """

    pads: Pads
    value: float
    least: float
    source: str
    image: str

    def around(self, inner: Pads) -> Pads:
        """Pads of this border and one inside of it together."""
        top, left, bottom, right = (a + b for a, b in zip(inner, self.pads, strict=True))
        return top, left, bottom, right


@dataclass(frozen=True, slots=True)
class AxisBorder:
    """A border of equal numbers along one axis: how many places before and behind, and the number."""

    axis: int
    before: int
    behind: int
    value: float


class Traits:
    """The traits of an operator, each with the default that promises nothing.

    Facts that do not depend on attributes or shapes are class variables, all others methods. Methods take
    the types of the operands (None for an absent one) where the answer depends on them.
    """

    elementwise: ClassVar[bool] = False
    """An element of the result depends on the elements at its place in the operands, which broadcast as
    numpy has it. So a transpose or reshape of all operands may be moved behind (sink-transposes,
    sink-reshapes)."""

    aligned: ClassVar[bool] = False
    """The same of operators that stay where they are: each element depends on those at its place alone, and
    operands broadcast as numpy has it (run-time counts)."""

    states_shape: ClassVar[bool] = False
    """Its attributes state the shape of its result and tell nothing else (run-time counts)."""

    follows_shape: ClassVar[bool] = False
    """Its attributes repeat sizes of axes that its operand has too (run-time counts)."""

    additive: ClassVar[bool] = False
    """The result is a sum or a difference of its operands. A factor that multiplies one of them has to
    multiply all (equalization)."""

    neutral: ClassVar[float | None] = None
    """The number that leaves the other operand as it is: on the right, on either side of a commutative
    operator (simplify-algebra)."""

    multiplicative: ClassVar[bool] = False
    """The result is the product of its operands, element by element (attention)."""

    divides: ClassVar[bool] = False
    """The result is the first operand divided by the second, element by element (unsuited)."""

    adds_up: ClassVar[bool] = False
    """Its results are sums of elements of its operand, which grow with their number (unsuited)."""

    reduces: ClassVar[bool] = False
    """Its results are each taken from all elements along axes of its operand: a sum, a mean, the largest
    (own levels)."""

    clamps: ClassVar[bool] = False
    """The result is the operand cut off at `bounds`, and nothing else happens (fuse-activation)."""

    standardizes: ClassVar[bool] = False
    """Every result has mean 0 and variance 1 before the operator's own scale and bias. It stays float, so
    SmoothQuant may move factors from its results into their readers."""

    rearranges: ClassVar[bool] = False
    """The result holds elements of the first operand, each at most once, at places that its shape alone
    decides. Floats may be moved in place of integers (float-results), and what happens to channels is found
    by moving their indices (equalization)."""

    moves_elements: ClassVar[bool] = False
    """The result holds elements of the operands, unchanged and of any type, and perhaps values that it
    adds. What it does to reals it does to the integers that stand for them (importer, DequantizeLinear)."""

    adds_values: ClassVar[bool] = False
    """It moves elements and puts others between them (`added_value`), which have no parameters of their
    own: integers are not moved in place of reals."""

    takes_slices: ClassVar[bool] = False
    """Its kernels read an operand whose channels are a slice of a wider tensor where it lies, without a
    copy (merge-products)."""

    exact_in_onnxruntime: ClassVar[bool] = False
    """onnxruntime's int8 kernel follows the same arithmetic, to the bit. Reports then ask for equal bits;
    other operators run there in float between two conversions."""

    takes_halves: ClassVar[bool] = False
    """It reads and gives reals of 16 bits, which others have as constant weights only."""

    half_operands: ClassVar[tuple[str, ...]] = ()
    """Names of operands, besides the weights of a sum of products, that may be constants of 16 bits."""

    tells_ratios: ClassVar[bool] = False
    """Its result depends on ratios of its operand: small values matter as much as large ones."""

    is_root: ClassVar[bool] = False
    """Its result is a root, which makes small values of its operand larger beside the large ones."""

    measures_rows: ClassVar[bool] = False
    """Its result is the scale of every row of its operand, measured while the model runs."""

    gives_ranks: ClassVar[bool] = False
    """Its integers are places in the order of the elements of its operand, which the least noise turns."""

    conversion: ClassVar[Conversion | None] = None
    """Set where only the way reals are stored changes: not a computation, and no node of an int8 region."""

    @property
    def quantizes(self) -> bool:
        """Whether it stores reals as integers."""
        return self.conversion == Conversion(takes_integers=False, gives_integers=True)

    @property
    def dequantizes(self) -> bool:
        """Whether it turns integers into the reals that they stand for."""
        return self.conversion == Conversion(takes_integers=True, gives_integers=False)

    @property
    def rescales(self) -> bool:
        """Whether it converts integers to other quantization parameters."""
        return self.conversion == Conversion(takes_integers=True, gives_integers=True)

    @property
    def is_border(self) -> bool:
        """Whether it converts between float and integers."""
        return self.quantizes or self.dequantizes

    @property
    def rounds_to(self) -> str | None:
        """The 16-bit float type that it rounds each element to, if it does nothing else; else None."""
        return None

    @property
    def keeps_zeros(self) -> bool:
        """Whether its result is 0 where all its operands are."""
        return False

    @property
    def weight_blocks(self) -> BlockForm | None:
        """Form of its weights where they are integers in blocks, else None."""
        return None

    def with_weight_blocks(self, form: BlockForm) -> Any:
        """The operator with weights in blocks, of rows that each have one of several matrices; else None."""
        return None

    @property
    def bounds(self) -> Bounds:
        """Bounds at which a single or fused Relu or Clip cuts off real results; infinite for none."""
        return -math.inf, math.inf

    @property
    def result_range(self) -> Bounds:
        """No real result is below the first or above the second, as far as the attributes tell.

        A NaN and the values of windows that see nothing are left aside. (pad-into-pool)
        """
        return min(self.bounds), max(self.bounds)

    def bounded(self, lo: float, hi: float) -> Self | None:
        """The operator with these bounds in place of its own; None if it cannot clamp its result."""
        return None

    @property
    def added_value(self) -> float | None:
        """The number that it puts between the elements that it moves; None if it puts none."""
        return None

    @property
    def axis_border(self) -> AxisBorder | None:
        """The border that it puts around its operand, if along one axis, and it does nothing else; else None.

        (run-time counts)
        """
        return None

    def elements_from(self, count: int) -> tuple[int, ...]:
        """Indices of the operands, of `count`, that hold all elements of the result.

        Empty where the result may hold other numbers. (pad-into-pool)
        """
        return (0,) if self.rearranges else ()

    @property
    def looks_up_rows(self) -> bool:
        """Whether the result holds rows of the first operand that the second chooses. (embeddings)"""
        return False

    @property
    def table_blocks(self) -> BlockForm | None:
        """The form of the rows that it looks up in blocks, which each lie together; None for others."""
        return None

    def of_columns(self) -> Self | None:
        """The look-up in blocks of the same rows that are columns, as products have them; None for others."""
        return None

    @property
    def hosted(self) -> HostedNodes | None:
        """The ONNX nodes that onnxruntime executes; None for an operator that qglow executes itself."""
        return None

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """The effect of places along an axis of an operand, counted from 0, on the results.

        None where the result as a whole depends on how many places there are. (run-time counts)
        """
        if not (self.elementwise or self.aligned):
            return None
        shapes = [kind.shape for kind in inputs if kind is not None]
        kind = inputs[index]
        return None if kind is None else aligned_effect(axis, kind.shape, max(shapes, key=len))

    @property
    def factor_and_summand(self) -> tuple[Any, Any] | None:
        """Operators that multiply the first operand by the second, and then add the third, as it does.

        None for an operator that does something else. (run-time counts)
        """
        return None

    @property
    def divided_sum(self) -> tuple[Any, tuple[int, ...]] | None:
        """The operator whose result a mean divides by its number of elements, and their axes.

        None for an operator that does something else. (run-time counts)
        """
        return None

    def reduction_of_image(self, inputs: Types) -> Any | None:
        """The reduction over all pixels that a pool with a single window is; None for others.

        (run-time counts)
        """
        return None

    def joined_axis(self, inputs: Types) -> int | None:
        """Axis, from 0, along which the result has all operands one after the other; None for none.

        (run-time counts)
        """
        return None

    def first_place(self, axis: int) -> int:
        """Place along an axis of the first operand that a result which `cuts` begins with.

        (run-time counts)
        """
        return 0

    def end_place(self, axis: int) -> int:
        """Place along an axis of the first operand that a result which `cuts` ends before.

        (run-time counts)
        """
        return 0

    def passes_through(self, inputs: Types) -> bool:
        """Whether the result is the first operand as long as both types are equal (simplify-algebra)."""
        return False

    def summed_elements(self, inputs: Types) -> int:
        """Number of elements of the first operand that a mean adds up for a result; 0 for other operators.

        Sums of int16 have to fit int32.
        """
        return 0

    @property
    def filters(self) -> Filters | None:
        """The layout of its weights, where operands are x, w and an optional bias a channel."""
        return None

    def window(self, inputs: Types) -> SlidingWindow | None:
        """The window that slides over the pixels of the first operand; None if there is none."""
        return None

    def with_border(self, border: ImageBorder, inputs: Types) -> Self | str | None:
        """The operator that reads the image without the border and adds it itself.

        `inputs` are the types of the operands without the border. Where results would change, the reason in
        words; None for an operator without windows. (pad-into-conv, pad-into-pool)
        """
        return None

    def transposed(self, perm: Sequence[int]) -> Self | str | None:
        """f' with f(transpose(x, perm)) = transpose(f'(x), perm), x being all operands of `elementwise` or
        variadic operators and the first one of others. (sink-transposes)

        Where this transpose cannot be moved behind, what is wrong with it in words; None for an operator
        that no transpose can be moved behind.
        """
        return self if self.elementwise else None

    def distributes_along(self, inputs: Types) -> int | None:
        """Axis, from 0, along which results are shares that add up to 1; None for others. (attention)"""
        return None

    def scores_along(self, inputs: Types) -> int | None:
        """Axis, from 0, along which results are shares that add up to 1, or logarithms of such. (verdict)"""
        return self.distributes_along(inputs)

    def scales_along(self, axis: int) -> bool:
        """Whether f(k x) = k f(x) for factors k > 0, one for each index along `axis` of x. (equalization)

        x is the first operand, or all of an `additive` operator. Upper bounds are left aside; for
        operators that rearrange, k is rearranged alike.
        """
        return self.rearranges

    def axis_after(self, axis: int) -> int:
        """Axis of the result that `axis` of the first operand becomes, if the operator `scales_along` it."""
        return axis

    def axis_before(self, axis: int) -> int:
        """The inverse of `axis_after`."""
        return axis

    def constants_axis(self, inputs: Types) -> int | None:
        """Axis of the result along which the operands after the first hold one number for each index.

        All of these are factors or terms of that channel, so multiplying them by a factor multiplies the
        channel. None if there are no such operands. (equalization)
        """
        return None

    def with_channels(self, count: int, inputs: Types) -> Self | None:
        """The operator for `count` channels along axis 1, where `inputs` have another number.

        None if the number is fixed. (channel splitting)
        """
        return None
