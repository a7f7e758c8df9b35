"""What operators promise to passes, against what they compute."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from qglow.core.types import Array, float_type
from qglow.graph.operator import OPERATORS, Operator
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add, Clip, Div, Mul, PRelu, Relu, Sub
from qglow.graph.ops.functions import (
    Abs,
    Elu,
    Exp,
    HardSigmoid,
    LeakyRelu,
    Neg,
    RoundTo,
    Softplus,
    Sqrt,
)
from qglow.graph.ops.linear import Gemm, MatMul
from qglow.graph.ops.movement import Expand, Gather, Pad, Slice
from qglow.graph.ops.normalization import Affine, LayerNormalization
from qglow.graph.ops.pool import AveragePool, GlobalAveragePool, MaxPool
from qglow.graph.ops.quantize import Dequantize, Quantize, Rescale
from qglow.graph.ops.reduce import ReduceMax, ReduceMean, ReduceMin, ReduceSum
from qglow.graph.ops.resize import ResizeNearest
from qglow.graph.ops.selection import Max
from qglow.graph.ops.shape import Cast, ChannelShuffle, Concat, Identity, Reshape, Shape, Transpose
from qglow.graph.ops.softmax import LogSoftmax, Softmax
from qglow.graph.traits import Filters, ImageBorder


@dataclass(frozen=True)
class Example:
    """An operator and the shapes of its operands."""

    operator: Operator
    shapes: tuple[tuple[int, ...], ...]

    def operands(self) -> list[Array]:
        rng = np.random.default_rng(7)
        return [rng.normal(size=shape).astype(np.float32) for shape in self.shapes]

    def types(self) -> list:
        return [float_type(*shape) for shape in self.shapes]

    def run(self, operands: list[Array]) -> Array:
        with np.errstate(all="ignore"):
            return self.operator.evaluate(operands)[0]

    def __str__(self) -> str:
        return str(self.operator)


IMAGE, ROWS = (2, 6, 5, 4), (3, 6)
EXAMPLES = [
    *(
        Example(op, (IMAGE,))
        for op in (
            Relu(),
            Clip(-0.5, 1.0),
            Clip(0.0, 0.75),
            LeakyRelu(),
            Abs(),
            Exp(),
            Elu(),
            Neg(),
            HardSigmoid(),
            Softplus(),
            Sqrt(),
            RoundTo(),
            Softmax(axis=1),
            LogSoftmax(axis=-1),
            Identity(),
            MaxPool(kernel=(2, 2)),
            MaxPool(kernel=(3, 2), pads=(1, 0, 1, 1)),
            AveragePool(kernel=(3, 3), strides=(2, 1), pads=(1, 1, 1, 1)),
            GlobalAveragePool(),
            ReduceMean(axes=(2, 3), keepdims=False),
            ReduceMean(axes=(0,), keepdims=False),
            ReduceMax(axes=(3,)),
            ReduceMin(axes=(1,)),
            ReduceSum(axes=(2,)),
            ResizeNearest(sizes=(2, 6, 10, 8), scales=(1.0, 1.0, 2.0, 2.0)),
            Reshape(shape=(2, 6, 20)),
            Transpose(perm=(0, 2, 3, 1)),
            ChannelShuffle(groups=3),
            Slice((0, 1, 0, 0), (2, 5, 5, 4), (1, 2, 1, 3)),
            Pad(pads=(0, 0, 1, 1, 0, 0, 0, 2), value=0.25),
        )
    ),
    *(Example(op, (IMAGE, IMAGE)) for op in (Add(), Add(lo=0.0), Sub(hi=0.5), Mul(), Div(), Max())),
    Example(Concat(axis=1), (IMAGE, IMAGE)),
    Example(PRelu(), (IMAGE, (6, 1, 1))),
    Example(Conv(group=2, pads=(1, 1, 1, 1), lo=0.0, hi=1.0), (IMAGE, (4, 3, 3, 3), (4,))),
    Example(Gemm(hi=0.5), (ROWS, (6, 5), (5,))),
    Example(MatMul(), (ROWS, (6, 5))),
    Example(Affine(lo=0.0), (IMAGE, (6,), (6,))),
    Example(LayerNormalization(), (ROWS, (6,), (6,))),
    Example(LayerNormalization(axis=1), (IMAGE, (6, 5, 4))),
]
examples = pytest.mark.parametrize("example", EXAMPLES, ids=str)


@examples
def test_results_are_within_their_range(example: Example) -> None:
    low, high = example.operator.result_range
    result = example.run([4 * x for x in example.operands()])
    result = result[~np.isnan(result)]
    assert low <= result.min() and result.max() <= high


@examples
def test_bounds_can_be_set_where_the_operator_takes_some(example: Example) -> None:
    bounded = example.operator.bounded(-0.125, 0.25)
    assert (bounded is None) == (not hasattr(example.operator, "lo"))
    if bounded is not None:
        result = Example(bounded, example.shapes).run(example.operands())
        assert bounded.bounds == (-0.125, 0.25)
        assert result.min() == -0.125 and result.max() == 0.25


@examples
def test_clamps_cut_off_and_do_nothing_else(example: Example) -> None:
    if example.operator.clamps:
        (x,) = example.operands()
        np.testing.assert_array_equal(example.run([x]), np.clip(x, *map(np.float32, example.operator.bounds)))


@examples
def test_elements_come_from_the_operands_that_are_named(example: Example) -> None:
    operands = example.operands()
    sources = example.operator.elements_from(len(operands))
    if sources:
        assert np.isin(example.run(operands), np.concatenate([operands[i].ravel() for i in sources])).all()
    if example.operator.rearranges:
        assert sources == (0,)
        places = np.arange(operands[0].size, dtype=np.float32).reshape(operands[0].shape)
        moved = example.run([places])
        assert np.unique(moved).size == moved.size
        np.testing.assert_array_equal(example.run(operands), operands[0].ravel()[moved.astype(int)])


@examples
def test_neutral_numbers_change_nothing(example: Example) -> None:
    if example.operator.neutral is not None:
        x, neutral = example.operands()[0], np.full(IMAGE, example.operator.neutral, np.float32)
        plain = type(example.operator)()
        np.testing.assert_array_equal(plain.evaluate([x, neutral])[0], x)
        if plain.commutative:
            np.testing.assert_array_equal(plain.evaluate([neutral, x])[0], x)


@examples
def test_what_passes_through_changes_nothing(example: Example) -> None:
    same = [Example(op, (IMAGE,)) for op in (Slice((0,) * 4, IMAGE, (1,) * 4), Pad(pads=(0,) * 8), Clip())]
    same += [Example(op, (IMAGE,)) for op in (Reshape(IMAGE), Transpose((0, 1, 2, 3)), Concat(axis=1))]
    same += [Example(AveragePool(kernel=(1, 1)), (IMAGE,)), Example(MaxPool(kernel=(1, 1)), (IMAGE,))]
    assert all(one.operator.passes_through(one.types()) for one in same)
    for one in (example, *same):
        operands = one.operands()
        kinds = one.operator.infer(one.types())
        if one.operator.passes_through(one.types()) and kinds[0] == one.types()[0]:
            np.testing.assert_array_equal(one.run(operands), operands[0])


@examples
def test_transposes_may_be_moved_behind(example: Example) -> None:
    operands, rank = example.operands(), len(example.shapes[0])
    together = example.operator.elementwise or example.operator.operands[0].endswith("*")
    for perm in ((0, 2, 3, 1), (0, 1, 3, 2), (2, 0, 1, 3)) if rank == 4 else ((1, 0),):
        found = example.operator.transposed(perm)
        if found is None or isinstance(found, str):
            continue
        # The operator reads what is transposed, so it is given what becomes of the transpose.
        inverse = np.argsort(perm)
        before = [x.transpose(inverse) if together or i == 0 else x for i, x in enumerate(operands)]
        wanted = example.run(operands)
        np.testing.assert_array_equal(found.evaluate(before)[0].transpose(perm), wanted)


@examples
def test_factors_pass_along_the_axes_that_scale(example: Example) -> None:
    """Bounds above are left aside, so the operator is tried without; powers of two round nothing."""
    operator, operands = example.operator, example.operands()
    if math.isfinite(operator.bounds[1]):
        lifted = operator.bounded(operator.bounds[0], math.inf)
        operator = operator if lifted is None else lifted
    for axis in range(len(example.shapes[0])):
        if operator.rearranges or not operator.scales_along(axis):
            continue
        factors = (2.0 ** (np.arange(example.shapes[0][axis]) % 5)).astype(np.float32)

        def along(x: Array, axis: int, factors: Array = factors) -> Array:
            return x * factors.reshape([-1 if i == axis else 1 for i in range(x.ndim)])

        scaled = [along(x, axis) if operator.additive or i == 0 else x for i, x in enumerate(operands)]
        result = operator.evaluate(operands)[0]
        after = operator.axis_after(axis)
        assert operator.axis_before(after) == axis
        np.testing.assert_array_equal(operator.evaluate(scaled)[0], along(result, after))


@examples
def test_constants_scale_the_channels_of_their_axis(example: Example) -> None:
    operator, operands = example.operator, example.operands()
    axis = operator.constants_axis(example.types())
    if axis is None:
        return
    plain = operator.bounded(-math.inf, math.inf) or operator
    result = plain.evaluate(operands)[0]
    factors = (2.0 ** (np.arange(result.shape[axis]) % 5)).astype(np.float32)
    filters = operator.filters
    x, w, *bias = operands
    scaled = w * (factors if filters is None else filters.along_outputs(factors, w.ndim))
    wanted = result * factors.reshape([-1 if i == axis else 1 for i in range(result.ndim)])
    found = plain.evaluate([x, scaled, *(b * factors for b in bias)])[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@examples
def test_filters_say_where_channels_lie(example: Example) -> None:
    filters, operands = example.operator.filters, example.operands()
    if filters is None:
        assert example.operator.accumulate is None
        return
    x, w, *bias = operands
    factors = (2.0 ** (np.arange(x.shape[1]) % 5)).astype(np.float32)
    scaled = x * factors.reshape([-1 if i == 1 else 1 for i in range(x.ndim)])
    divided = w / filters.along_inputs(factors, w.shape)
    np.testing.assert_allclose(
        example.run([scaled, divided, *bias]), example.run(operands), rtol=0, atol=1e-6
    )
    rows = filters.rows(w)
    assert rows.shape[:2] == (filters.groups, w.shape[filters.outputs] // filters.groups)
    np.testing.assert_array_equal(filters.weights(rows, w.shape), w)


def test_filters_of_any_order_are_restored() -> None:
    weights = np.arange(5 * 2 * 6 * 3).reshape(5, 2, 6, 3)
    filters = Filters(outputs=2, inputs=0, groups=2)
    rows = filters.rows(weights)
    assert rows.shape == (2, 3, 5, 6)
    np.testing.assert_array_equal(rows[1, 0, 4], weights[4, :, 3, :].ravel())
    np.testing.assert_array_equal(filters.weights(rows, weights.shape), weights)
    factors = np.arange(1, 11).reshape(2, 5)
    spread = np.broadcast_to(filters.along_inputs(factors.reshape(-1), weights.shape), weights.shape)
    np.testing.assert_array_equal(filters.rows(spread)[1, 2, :, 0], factors[1])


def test_channels_can_be_more_where_the_operator_says_so() -> None:
    for example in EXAMPLES:
        types = example.types()
        more = example.operator.with_channels(9, types)
        if more is None or example.operator.filters is not None:
            continue
        wider = [float_type(s[0], 9, *s[2:]) for s in example.shapes]
        (kind,) = more.infer(wider)
        (before,) = example.operator.infer(types)
        assert kind.shape == tuple(9 if axis == 1 else n for axis, n in enumerate(before.shape)) or (
            isinstance(example.operator, ReduceMean | ReduceMax)
        )
    flat = Reshape(shape=(2, 6))
    assert flat.with_channels(9, [float_type(2, 6, 1, 1)]) == Reshape(shape=(2, 9))
    assert flat.with_channels(9, [float_type(4, 3, 1, 1)]) is None


def test_a_border_becomes_padding_where_no_result_changes() -> None:
    image = np.random.default_rng(0).normal(size=(1, 2, 5, 5)).astype(np.float32)
    kind, weights = float_type(1, 2, 5, 5), np.ones((3, 2, 3, 3), np.float32)
    zeros = ImageBorder((1, 0, 1, 1), 0.0, -math.inf, "Pad 'p'", "x")
    lowest = ImageBorder((1, 0, 1, 1), -9.0, -8.0, "Pad 'p'", "x")
    cases: list[tuple[Operator, ImageBorder, list[Array]]] = [
        (AveragePool(kernel=(3, 3)), zeros, []),
        (MaxPool(kernel=(3, 3)), lowest, []),
        (Conv(), zeros, [weights]),
    ]
    for operator, border, more in cases:
        (top, left, bottom, right) = border.pads
        amounts = ((0, 0), (0, 0), (top, bottom), (left, right))
        padded = np.pad(image, amounts, constant_values=border.value)
        found = operator.with_border(border, [kind, *(float_type(*w.shape) for w in more)])
        assert isinstance(found, Operator)
        wanted = operator.evaluate([padded, *more])[0]
        np.testing.assert_allclose(found.evaluate([image, *more])[0], wanted, rtol=0, atol=1e-6)
    assert MaxPool(kernel=(3, 3)).with_border(zeros, [kind]) == (
        "Pad 'p' adds 0, and %x may be less (from -inf)"
    )
    assert Relu().with_border(zeros, [kind]) is None


def test_means_count_their_elements() -> None:
    kind = [float_type(*IMAGE)]
    assert AveragePool(kernel=(3, 2)).summed_elements(kind) == 6
    assert GlobalAveragePool().summed_elements(kind) == 20
    assert ReduceMean(axes=(1, 3)).summed_elements(kind) == 24
    assert MaxPool(kernel=(3, 2)).summed_elements(kind) == ReduceSum(axes=(1,)).summed_elements(kind) == 0


def test_conversions() -> None:
    asked = {op.name: (op.quantizes, op.dequantizes, op.rescales, op.is_border) for op in (
        Quantize(), Dequantize(), Rescale(), Cast(to="i32"), RoundTo(), Relu()  # type: ignore[arg-type]
    )}  # fmt: skip
    assert asked == {
        "Quantize": (True, False, False, True),
        "Dequantize": (False, True, False, True),
        "Rescale": (False, False, True, False),
        "Cast": (False,) * 4,
        "RoundTo": (False,) * 4,
        "Relu": (False,) * 4,
    }
    assert RoundTo("bfloat16").rounds_to == "bfloat16" and Cast(to="i32").rounds_to is None  # type: ignore[arg-type]


def test_types_alone_tell_a_shape() -> None:
    (found,) = Shape().evaluate_types([float_type(2, 3)]) or ()
    np.testing.assert_array_equal(found, [2, 3])
    assert Identity().evaluate_types([float_type(2, 3)]) is None


def test_ranges_of_functions_are_no_bounds() -> None:
    """Bounds narrow what int8 has to hold, and are fused; a function just does not leave its range."""
    for operator in (Abs(), Exp(), Softplus(), Sqrt(), HardSigmoid(), Softmax()):
        assert operator.result_range[0] == 0.0 and operator.bounds == (-math.inf, math.inf)


def test_who_promises_what() -> None:
    """The operators that passes treated by name before they asked for traits; a declaration lost is seen."""

    def named(trait: str) -> set[str]:
        found = {name: getattr(cls, trait) for name, cls in OPERATORS.items()}
        return {name for name, promise in found.items() if promise is not False and promise is not None}

    functions = {name for name, cls in OPERATORS.items() if cls.operands == ("x",) and cls.elementwise}
    assert functions >= {"Relu", "Clip", "Sigmoid", "Tanh", "Gelu", "LeakyRelu", "RoundTo", "Erf", "Sqrt"}
    arithmetic = {"Add", "Sub", "Mul", "Div", "Pow"}
    assert named("elementwise") == functions | arithmetic
    assert named("additive") == {"Add", "Sub"} and named("neutral") == {"Add", "Sub", "Mul"}
    assert named("clamps") == {"Relu", "Clip"}
    assert named("standardizes") == {"LayerNormalization", "InstanceNormalization"}
    assert named("rearranges") == {"Reshape", "Transpose", "ChannelShuffle", "Slice", "Identity"}
    assert named("adds_values") == {"Pad"}
    conversions, pools = {"Quantize", "Dequantize", "Rescale"}, {"MaxPool", "AveragePool"}
    assert named("conversion") == conversions
    assert named("takes_slices") == functions | arithmetic | conversions | pools | {"Conv"}
    assert named("exact_in_onnxruntime") == pools | {"GlobalAveragePool", "Concat", "Conv", "Gemm", "MatMul"}
    assert {"Gather", "Expand", "TopK", "ResizeNearest", "Pad", "ReduceMax"} <= named("moves_elements")
    assert {Gather(axis=0).elements_from(2), Expand(shape=(2,)).elements_from(1)} == {(0,), ()}
