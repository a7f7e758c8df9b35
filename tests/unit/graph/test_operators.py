"""What operators say about themselves: types, meaning in float and int8, and refusals."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from qglow.core.types import Array, ElementType, Quantization, TensorType, float_type
from qglow.graph import OPERATORS, Operator
from qglow.graph.operator import (
    Accumulate,
    KeepFloat,
    OperatorTypeError,
    ReadsIntegers,
    Recur,
    SameAs,
    Table,
    Unify,
)
from qglow.graph.ops.blocks import BlockGather, BlockGemm
from qglow.graph.ops.control import COUNT, FLAG, If, Loop
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add, Clip, Div, Mul, Pow, PRelu, Relu, Sub
from qglow.graph.ops.experts import ExpertBlockGemm, ExpertGemm
from qglow.graph.ops.functions import (
    Gelu,
    RoundTo,
    Sigmoid,
    Tanh,
)
from qglow.graph.ops.linear import Gemm, MatMul
from qglow.graph.ops.logic import And, Compare, Not, Or, Whole
from qglow.graph.ops.movement import Expand, Gather, GatherElements, Pad, Slice
from qglow.graph.ops.normalization import (
    LRN,
    Affine,
    BatchNormalization,
    InstanceNormalization,
    LayerNormalization,
)
from qglow.graph.ops.pool import AveragePool, GlobalAveragePool, MaxPool
from qglow.graph.ops.quantize import Dequantize, QuantizationProfile, Quantize, Rescale
from qglow.graph.ops.ranking import ArgMax, ArgMin, TopK, TopKIndices
from qglow.graph.ops.recurrence import Recurrence
from qglow.graph.ops.reduce import CumSum, ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum
from qglow.graph.ops.resize import Resize, ResizeNearest
from qglow.graph.ops.rows import RowScales
from qglow.graph.ops.selection import Max, Min, Where
from qglow.graph.ops.shape import Cast, ChannelShuffle, Concat, Identity, Reshape, Shape, Transpose
from qglow.graph.ops.softmax import LogSoftmax, Softmax
from qglow.numerics.conv import conv_int8
from qglow.numerics.quantize import dequantize_by, quantize_by
from tests.suite.control import adding
from tests.suite.functions import FUNCTIONS
from tests.suite.opaque import two_largest

IMAGE = (2, 4, 5, 6)
F = ElementType.FLOAT
INDICES = TensorType(ElementType.INT64, (3,))
BOOLEANS = TensorType(ElementType.BOOL, (2, 3))
CASES: list[tuple[Operator, list[TensorType]]] = [
    (Conv(strides=(2, 1), pads=(1, 1, 0, 2)), [float_type(*IMAGE), float_type(3, 4, 3, 3), float_type(3)]),
    (Conv(group=4, dilations=(2, 2), lo=0.0), [float_type(*IMAGE), float_type(8, 1, 2, 2)]),
    (Gemm(hi=1.0), [float_type(3, 4), float_type(4, 5), float_type(5)]),
    (MatMul(), [float_type(2, 1, 3, 4), float_type(5, 4, 6)]),
    (MatMul(), [float_type(4), float_type(5, 4, 6)]),
    (MatMul(), [float_type(2, 3, 4), float_type(4)]),
    (MaxPool(kernel=(3, 2), strides=(2, 2), pads=(1, 0, 1, 1), ceil_mode=True), [float_type(*IMAGE)]),
    (AveragePool(kernel=(3, 3), pads=(1, 1, 1, 1), count_include_pad=True), [float_type(*IMAGE)]),
    (GlobalAveragePool(), [float_type(*IMAGE)]),
    (Add(lo=0.0), [float_type(*IMAGE), float_type(4, 1, 1)]),
    (Sub(), [float_type(3, 1), float_type(1, 4)]),
    (Mul(), [float_type(3), float_type(3)]),
    (Div(), [float_type(3, 1), float_type(1, 4)]),
    (Pow(), [float_type(3), float_type(1)]),
    (PRelu(), [float_type(*IMAGE), float_type(4, 1, 1)]),
    (Max(), [float_type(3, 1), float_type(4)]),
    (Min(), [float_type(3), float_type(3)]),
    (Where(), [BOOLEANS, float_type(3), float_type(2, 1)]),
    (Compare(relation="less"), [float_type(3, 1), float_type(4)]),
    (Whole(operation="xor"), [TensorType(ElementType.UINT8, (3, 1)), TensorType(ElementType.UINT8, (4,))]),
    (And(), [BOOLEANS, BOOLEANS]),
    (Or(), [BOOLEANS, BOOLEANS]),
    (Not(), [BOOLEANS]),
    *((function, [float_type(3)]) for function in FUNCTIONS),
    (RoundTo("bfloat16"), [float_type(3)]),
    (Relu(), [float_type(3)]),
    (Clip(lo=-1.0, hi=1.0), [float_type(3)]),
    (Sigmoid(), [float_type(3)]),
    (Tanh(), [float_type(3)]),
    (BatchNormalization(), [float_type(*IMAGE), *[float_type(4)] * 4]),
    (Affine(), [float_type(*IMAGE), float_type(4), float_type(4)]),
    (Softmax(axis=1), [float_type(3, 4)]),
    (Softmax(axis=1, masked_to_zero=True), [float_type(3, 4)]),
    (LogSoftmax(axis=0), [float_type(3, 4)]),
    (Reshape(shape=(6, 2)), [float_type(3, 4)]),
    (Reshape(shape=()), [float_type(1)]),
    (Transpose(perm=(2, 0, 1)), [float_type(3, 4, 5)]),
    (Transpose(perm=()), [float_type()]),
    (ChannelShuffle(groups=3), [float_type(2, 12, 2)]),
    (Concat(axis=-1), [float_type(3, 4), float_type(3, 2)]),
    (Slice(starts=(1, 0), ends=(3, 4), steps=(1, 3)), [float_type(3, 4)]),
    (Slice(starts=(1,), ends=(1,), steps=(2,)), [float_type(3)]),
    (Pad(pads=(1, 0, 2, 3), value=-1.5), [float_type(3, 4)]),
    (Pad(pads=(1, 0, 2, 3), mode="edge"), [float_type(3, 4)]),
    (Pad(pads=(1, 0, 2, 3), mode="reflect"), [float_type(3, 4)]),
    (Pad(pads=(1, 0, 2, 3), mode="wrap"), [float_type(3, 4)]),
    (Expand(shape=(2, 3, 4)), [float_type(3, 1)]),
    (ResizeNearest(sizes=(3, 9), scales=(1.0, 2.25)), [float_type(3, 4)]),
    (Resize(sizes=(6, 2), scales=(2.0, 0.5), mode="cubic"), [float_type(3, 4)]),
    (LayerNormalization(axis=1), [float_type(2, 3, 4), float_type(3, 4), float_type(4)]),
    (InstanceNormalization(), [float_type(*IMAGE), float_type(4), float_type(4)]),
    (LRN(size=3), [float_type(*IMAGE)]),
    (RowScales(), [float_type(2, 5)]),
    (
        BlockGather(width=5, block=16),
        [TensorType(ElementType.UINT8, (4, 3)), INDICES, float_type(4, 1)],
    ),
    (BlockGemm(block=16), [float_type(2, 3), TensorType(ElementType.UINT8, (2, 4)), float_type(1, 4)]),
    (
        ExpertGemm(2),
        [float_type(2, 3), float_type(3, 8), TensorType(ElementType.INT64, (2,)), float_type(8)],
    ),
    (
        ExpertBlockGemm(2, block=16),
        [float_type(3, 3), TensorType(ElementType.UINT8, (2, 8)), float_type(1, 8), INDICES],
    ),
    (ReduceSum(axes=(1, -1)), [float_type(2, 3, 4)]),
    (ReduceMean(axes=(0,), keepdims=False), [float_type(2, 3, 4)]),
    (ReduceMax(axes=(1,)), [float_type(2, 3)]),
    (ReduceMin(axes=(0, 1), keepdims=False), [float_type(2, 3)]),
    (ReduceProd(axes=()), [float_type(2, 3)]),
    (CumSum(axis=-1, exclusive=True), [float_type(2, 3)]),
    (ArgMax(axis=1), [float_type(2, 3, 4)]),
    (ArgMin(axis=-1, keepdims=False, last=True), [float_type(2, 3)]),
    (TopK(axis=0, k=2), [float_type(5, 3)]),
    (TopKIndices(axis=-1, k=4, largest=False), [float_type(5, 7)]),
    (
        Recurrence("lstm", ("sigmoid", "tanh", "tanh"), ((), (), ())),
        [float_type(2, 3, 16), float_type(4, 16), float_type(3, 4), float_type(3, 4)],
    ),
    (Gather(axis=1), [float_type(2, 4), INDICES]),
    (GatherElements(axis=1), [float_type(2, 4), TensorType(ElementType.INT64, (1, 6))]),
    (Identity(), [float_type(3)]),
    (Shape(), [float_type(3, 4)]),
    (Cast(to=ElementType.INT64), [float_type(3)]),
    (two_largest(3, 4), [float_type(3, 4)]),
    (If(adding(), adding()), [FLAG, float_type(3), float_type(3)]),
    (Loop(adding(COUNT), carried=1), [COUNT, FLAG, float_type(3), float_type(3)]),
    (Quantize(), [float_type(3)]),
    (Dequantize(), [float_type(3)]),
    (Rescale(), [float_type(3)]),
    (QuantizationProfile(), [float_type(3)]),
]
IDS = [f"{index}-{operator.name}" for index, (operator, _) in enumerate(CASES)]


def random_arrays(types: Sequence[TensorType], scale: float = 1.0) -> list[Array]:
    rng = np.random.default_rng(1)
    arrays = []
    for kind in types:
        data = (
            rng.integers(0, 2, kind.shape) if kind is INDICES else scale * np.abs(rng.normal(size=kind.shape))
        )
        arrays.append(np.asarray(data, kind.element.dtype))
    return arrays


def test_every_operator_is_tried() -> None:
    assert {operator.name for operator, _ in CASES} == set(OPERATORS)


@pytest.mark.parametrize(("operator", "types"), CASES, ids=IDS)
def test_results_have_the_inferred_types(operator: Operator, types: list[TensorType]) -> None:
    results = operator.evaluate(random_arrays(types))
    assert [TensorType(ElementType.of(r.dtype), r.shape) for r in results] == list(operator.infer(types))


@pytest.mark.parametrize("cls", OPERATORS.values(), ids=OPERATORS)
def test_declarations_are_consistent(cls: type[Operator]) -> None:
    names = [name.rstrip("?*") for name in cls.operands]
    assert len(set(names)) == len(names)
    assert cls.__name__ == cls.name and cls.__doc__
    assert set(cls.plain_operands) <= set(names)
    if isinstance(cls.policy, Accumulate):
        assert {cls.policy.x, cls.policy.w, cls.policy.bias} <= set(names)
    if isinstance(cls.policy, Table):
        assert cls.reference64 is not Operator.reference64
    if isinstance(cls.policy, KeepFloat):
        assert cls.policy.reason


def quantize_types(operator: Operator, types: Sequence[TensorType]) -> list[TensorType]:
    """int8 types of a range that holds the random data; those of movements are all the same."""
    result = []
    for index, kind in enumerate(types):
        keeps = (
            kind.element is not F
            or index > 0
            and operator.operands[-1][-1] != "*"
            and _is_vector(operator, index)
        )
        shared = isinstance(operator.policy, SameAs | Unify)
        scale = 0.03 if shared else 0.03 + 0.005 * index
        result.append(kind if keeps else kind.quantized(Quantization.per_tensor(scale, -20)))
    return result


def _is_vector(operator: Operator, index: int) -> bool:
    return operator.operands[index].rstrip("?") in operator.plain_operands


ELEMENTWISE = [
    (operator, types)
    for operator, types in CASES
    if not isinstance(operator.policy, KeepFloat | Accumulate | ReadsIntegers | Recur)
    and not isinstance(operator, Rescale)
]


@pytest.mark.parametrize(("operator", "types"), ELEMENTWISE, ids=[o.name for o, _ in ELEMENTWISE])
def test_int8_form_is_within_a_step_of_the_float_form(operator: Operator, types: list[TensorType]) -> None:
    """Half a step is lost to the result's rounding; the rest is float32 rounding on a tie."""
    kinds = quantize_types(operator, types)
    inputs = [
        a if k.quantization is None else quantize_by(a, k.quantization)
        for a, k in zip(random_arrays(types), kinds, strict=True)
    ]
    (inferred,) = operator.infer(types)
    same = isinstance(operator.policy, SameAs | Unify)
    kind = inferred.quantized(Quantization.per_tensor(0.03 if same else 0.025, -20))
    (found,) = operator.run(inputs, kinds, [kind])
    reals = [
        a if k.quantization is None else dequantize_by(a, k.quantization)
        for a, k in zip(inputs, kinds, strict=True)
    ]
    assert kind.quantization is not None
    expected = quantize_by(operator.evaluate(reals)[0], kind.quantization)
    assert found.dtype == np.int8 and found.shape == kind.shape
    steps = np.abs(found.astype(int) - expected)
    assert int(np.max(steps, initial=0)) <= (0 if same else 1)
    assert int(np.sum(steps)) <= 0.1 * steps.size


def test_accumulating_operators_follow_the_contract_and_narrow_bounds() -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((1, 3, 5, 5), (4, 3, 3, 3)))
    bias = rng.integers(-999, 999, 4).astype(np.int32)
    x_quant, w_quant = Quantization.per_tensor(0.05, 7), Quantization.per_channel(np.full(4, 0.01), 0)
    y_quant = Quantization.per_tensor(0.5, -100)
    types = [
        TensorType(ElementType.INT8, x.shape, x_quant),
        TensorType(ElementType.INT8, w.shape, w_quant),
        TensorType(ElementType.INT32, bias.shape),
    ]
    operator = Conv(pads=(1, 1, 1, 1), lo=0.0, hi=6.0)
    (inferred,) = operator.infer(types)
    (found,) = operator.run([x, w, bias], types, [inferred.quantized(y_quant)])
    free = conv_int8(x, x_quant, w, w_quant, bias, y_quant, pads=(1, 1, 1, 1))
    np.testing.assert_array_equal(found, np.clip(free, -100, -88))
    (real,) = operator.run([x, w, bias], types, [inferred])
    assert real.dtype == np.float32 and real.min() == 0.0 and real.max() == 6.0


def test_gemm_in_int8_gives_float_or_int8() -> None:
    x_quant, w_quant = Quantization.per_tensor(0.5, 1), Quantization.per_channel(np.array([0.25, 0.5]), 1)
    x, w, bias = (
        np.array([[3, 5]], np.int8),
        np.array([[1, 2], [3, 4]], np.int8),
        np.array([10, -50], np.int32),
    )
    types = [
        TensorType(ElementType.INT8, (1, 2), x_quant),
        TensorType(ElementType.INT8, (2, 2), w_quant),
        TensorType(ElementType.INT32, (2,)),
    ]
    (real,) = Gemm().run([x, w, bias], types, [float_type(1, 2)])
    np.testing.assert_array_equal(real, np.array([[24 * 0.125, -30 * 0.25]], np.float32))
    y = float_type(1, 2).quantized(Quantization.per_tensor(1.0, 3))
    (found,) = Gemm(lo=0.0).run([x, w, bias], types, [y])
    np.testing.assert_array_equal(found, np.array([[6, 3]], np.int8))


def test_int8_pad_surrounds_with_the_quantized_value() -> None:
    kind = float_type(1).quantized(Quantization.per_tensor(0.5, 10))
    out = float_type(3).quantized(Quantization.per_tensor(0.5, 10))
    (found,) = Pad(pads=(1, 1), value=0.0).run([np.array([5], np.int8)], [kind], [out])
    assert found.tolist() == [10, 5, 10]


def test_a_profile_node_gives_nothing() -> None:
    assert QuantizationProfile().run([np.ones(3, np.float32)], [float_type(3)], []) == ()


def test_integers_are_computed_as_integers() -> None:
    shape = np.array([2, 2**40], np.int64)
    (result,) = Mul().evaluate([shape, np.array(3, np.int64)])
    assert result.dtype == np.int64 and result.tolist() == [6, 3 * 2**40]


def test_float_attributes_are_held_as_float32_so_that_text_restores_them() -> None:
    assert Clip(lo=0, hi=0.1).hi == float(np.float32(0.1))
    assert isinstance(Clip(lo=0).lo, float)
    assert BatchNormalization(epsilon=1e-5) == BatchNormalization()


@pytest.mark.parametrize(
    ("operator", "types", "message"),
    [
        (Conv(), [float_type(1, 3, 4, 4), float_type(2, 4, 1, 1)], "do not fit input"),
        (Conv(), [float_type(1, 3, 4), float_type(2, 3, 1, 1)], "must have 4 axes"),
        (Conv(), [float_type(1, 3, 2, 2), float_type(2, 3, 3, 3)], "does not fit"),
        (Conv(strides=(0, 1)), [float_type(1, 3, 4, 4), float_type(2, 3, 1, 1)], "must be positive"),
        (Conv(), [float_type(1, 3, 4, 4), float_type(2, 3, 1, 1), float_type(3)], "must be float<2>"),
        (Gemm(), [float_type(2, 3), float_type(2, 3)], "do not go together"),
        (MatMul(), [float_type(2, 3), float_type(2, 3)], "do not go together"),
        (MaxPool(kernel=(2, 2), pads=(2, 0, 0, 0)), [float_type(1, 1, 4, 4)], "as large as the window"),
        (Add(), [float_type(2), float_type(3)], "do not broadcast"),
        (Add(), [float_type(2), INDICES], "differ in element type"),
        (Add(lo=0.0), [INDICES, INDICES], "bounds on i64"),
        (Relu(), [INDICES], "must be float"),
        (PRelu(), [float_type(3), float_type(2, 3)], "does not broadcast to"),
        (Gelu(approximate="cubic"), [float_type(3)], "not none or tanh"),
        (RoundTo("float8"), [float_type(3)], "not float16 or bfloat16"),
        (Compare(relation="like"), [float_type(3), float_type(3)], "is not one of equal"),
        (Where(), [float_type(3), float_type(3), float_type(3)], "must be bool"),
        (And(), [BOOLEANS, float_type(2, 3)], "must be bool"),
        (Relu(), [], "operand x is missing"),
        (Affine(), [float_type(2, 3), float_type(2), float_type(3)], "must be <3>"),
        (Softmax(axis=2), [float_type(2, 3)], "out of range"),
        (Reshape(shape=(-1, 2)), [float_type(2, 3)], "does not reshape"),
        (Transpose(perm=(0, 0)), [float_type(2, 3)], "does not permute"),
        (ChannelShuffle(groups=4), [float_type(2, 6, 1)], "no channels for 4 groups"),
        (ChannelShuffle(groups=1), [float_type(6)], "has no channels"),
        (Concat(axis=0), [float_type(2, 3), float_type(2, 4)], "do not concatenate"),
        (Slice(starts=(0,), ends=(4,), steps=(1,)), [float_type(3)], "no slice"),
        (Pad(pads=(1, -1)), [float_type(3)], "do not fit"),
        (Gather(), [float_type(3), float_type(3)], "must be integers"),
        (GatherElements(), [float_type(3), float_type(3)], "must be integers"),
        (GatherElements(), [float_type(2, 4), INDICES], "differ in rank"),
        (GatherElements(1), [float_type(2, 4), TensorType(ElementType.INT64, (3, 4))], "are larger than x"),
    ],
)
def test_what_does_not_fit_is_refused(operator: Operator, types: list[TensorType], message: str) -> None:
    with pytest.raises(OperatorTypeError, match=message):
        operator.infer(types)


def test_bounds_of_a_clip_that_cannot_be_met_give_the_upper_one() -> None:
    assert Clip(lo=2.0, hi=1.0).evaluate([np.array([0.0, 3.0], np.float32)])[0].tolist() == [1.0, 1.0]
    assert math.isnan(float(Relu().evaluate([np.array([math.nan], np.float32)])[0][0]))
