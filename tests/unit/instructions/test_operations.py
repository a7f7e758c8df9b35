"""Operations: what they compute on NHWC buffers, and the types that they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import Array, ElementType, Quantization, TensorType, float_type
from qglow.instructions import OPERATIONS, Access, Operation
from qglow.instructions.operation import TypeErrorInOperation, register
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.ops.elementwise import Affine, Clip, ElementAdd, ElementMul, ElementSub
from qglow.instructions.ops.functions import FUNCTIONS
from qglow.instructions.ops.linear import FullyConnected
from qglow.instructions.ops.memory import Copy, FillPadding, Splat, TensorView
from qglow.instructions.ops.movement import Extract, Insert, InsertAt, Transpose
from qglow.instructions.ops.normalization import LocalResponse, Standardize
from qglow.instructions.ops.pool import AveragePool, MaxPool
from qglow.instructions.ops.profile import RecordProfile
from qglow.instructions.ops.quantize import Dequantize, Lookup, Quantize, Rescale
from qglow.instructions.ops.rows import QuantizeRows
from qglow.instructions.ops.softmax import Softmax
from qglow.numerics import affine, conv, linear, pool, tables
from qglow.numerics.requantize import multiplier

Sigmoid = FUNCTIONS["sigmoid"]
Tanh = FUNCTIONS["tanh"]

X = Quantization.per_tensor(0.05, 7)
Y = Quantization.per_tensor(0.1, -4)
RNG = np.random.default_rng(3)

PLACE = TensorType(ElementType.INT64, (1,))


def int8(shape: tuple[int, ...], quantization: Quantization | None = X) -> TensorType:
    return TensorType(ElementType.INT8, shape, quantization)


def int32(*shape: int) -> TensorType:
    return TensorType(ElementType.INT32, shape)


def run(operation: Operation, dest: TensorType, **operands: tuple[Array, TensorType]) -> Array:
    """Verify and execute; dest starts as garbage."""
    types = {"dest": dest, **{name: kind for name, (_, kind) in operands.items()}}
    operation.verify(types)
    result = np.full(dest.shape, 77, dest.element.dtype)
    operation.execute({"dest": result, **{name: data for name, (data, _) in operands.items()}}, types)
    return result


def random_int8(*shape: int) -> Array:
    return RNG.integers(-128, 128, shape).astype(np.int8)


def test_int8_convolution_is_that_of_numerics() -> None:
    x, w = random_int8(2, 5, 6, 4), random_int8(6, 3, 2, 2)
    bias, scales = RNG.integers(-999, 999, 6).astype(np.int32), RNG.uniform(0.001, 0.01, 6).astype(np.float32)
    window = ((2, 1), (1, 0, 1, 1), (1, 1), 2)
    operation = Convolution(q_lo=-4, strides=(2, 1), pads=(1, 0, 1, 1), group=2)
    factor = multiplier(X.scale, scales, Y.scale)
    w_type = int8(w.shape, None)
    shape = operation.output_shape(x.shape, w.shape)
    found = run(
        operation,
        int8(shape, Y),
        src=(x, int8(x.shape)),
        filter=(w, w_type),
        bias=(bias, int32(6)),
        multiplier=(factor, float_type(6)),
    )
    quantization = Quantization.per_channel(scales, 0)
    ocihw = (x.transpose(0, 3, 1, 2), X, w.transpose(0, 3, 1, 2), quantization, bias)
    np.testing.assert_array_equal(found, conv.conv_int8(*ocihw, Y, *window, lo=-4).transpose(0, 2, 3, 1))
    real = run(
        operation,
        float_type(*shape),
        src=(x, int8(x.shape)),
        filter=(w, w_type),
        bias=(bias, int32(6)),
        multiplier=(np.float32(X.scale) * scales, float_type(6)),
    )
    np.testing.assert_array_equal(real, conv.conv_int8(*ocihw, None, *window).transpose(0, 2, 3, 1))


def test_float_convolution_clamps() -> None:
    x, w = RNG.normal(size=(1, 4, 4, 3)).astype(np.float32), RNG.normal(size=(2, 1, 1, 3)).astype(np.float32)
    found = run(
        Convolution(lo=0.0, hi=0.5),
        float_type(1, 4, 4, 2),
        src=(x, float_type(*x.shape)),
        filter=(w, float_type(*w.shape)),
    )
    np.testing.assert_allclose(found, np.clip(x @ w.reshape(2, 3).T, 0, 0.5), rtol=1e-5, atol=1e-6)


def test_int8_matrix_product_is_that_of_numerics() -> None:
    x, w = random_int8(3, 9), random_int8(9, 4)
    bias, scales = RNG.integers(-99, 99, 4).astype(np.int32), RNG.uniform(0.001, 0.01, 4).astype(np.float32)
    found = run(
        FullyConnected(q_hi=20),
        int8((3, 4), Y),
        src=(x, int8(x.shape)),
        filter=(w, int8(w.shape, None)),
        bias=(bias, int32(4)),
        multiplier=(multiplier(X.scale, scales, Y.scale), float_type(4)),
    )
    wanted = linear.gemm_int8(x, X, w, Quantization.per_channel(scales, 1), bias, Y, hi=20)
    np.testing.assert_array_equal(found, wanted)


def test_rows_of_an_int8_product_may_have_scales() -> None:
    whole = Quantization((1.0,), (0,))
    x, w = random_int8(3, 9), random_int8(9, 4)
    rows, columns = (RNG.uniform(0.01, 1, n).astype(np.float32) for n in (3, 4))
    addend = RNG.normal(size=4).astype(np.float32)
    operands = {
        "src": (x, int8(x.shape, whole)),
        "filter": (w, int8(w.shape, None)),
        "bias": (np.zeros(4, np.int32), int32(4)),
        "multiplier": (columns, float_type(4)),
        "row_scales": (rows[:, None], float_type(3, 1)),
    }
    sums = (x.astype(np.int32) @ w.astype(np.int32)).astype(np.float32)
    scaled = sums * (rows[:, None] * columns)
    found = run(FullyConnected(lo=-1.0), float_type(3, 4), **operands)
    np.testing.assert_array_equal(found, np.maximum(scaled, np.float32(-1.0)))
    found = run(FullyConnected(), float_type(3, 4), **operands, addend=(addend, float_type(4)))
    np.testing.assert_array_equal(found, scaled + addend)


def test_int8_pools_are_those_of_numerics() -> None:
    x = random_int8(1, 5, 5, 3)
    images = x.transpose(0, 3, 1, 2)
    window = ((3, 3), (2, 2), (1, 1, 1, 1))
    found = run(MaxPool(*window), int8((1, 3, 3, 3)), src=(x, int8(x.shape)))
    np.testing.assert_array_equal(found, pool.max_pool(images, *window).transpose(0, 2, 3, 1))
    for included in (False, True):
        operation = AveragePool(*window, count_include_pad=included)
        found = run(operation, int8((1, 3, 3, 3), Y), src=(x, int8(x.shape)))
        wanted = pool.average_pool_int8(images, X, Y, *window, count_include_pad=included)
        np.testing.assert_array_equal(found, wanted.transpose(0, 2, 3, 1))


def test_float_average_is_the_mean() -> None:
    x = RNG.normal(size=(2, 4, 4, 3)).astype(np.float32)
    found = run(AveragePool(kernel=(4, 4)), float_type(2, 1, 1, 3), src=(x, float_type(*x.shape)))
    np.testing.assert_allclose(found[:, 0, 0], x.mean((1, 2)), rtol=1e-5, atol=1e-6)


def test_affine_is_along_the_last_axis() -> None:
    x, r, t = random_int8(2, 3, 4), *(RNG.normal(size=(2, 4)).astype(np.float32))
    factor, shift = affine.affine_multipliers(X, r, t, Y)
    operands = {"scale": (factor, float_type(4)), "shift": (shift, float_type(4))}
    found = run(Affine(q_lo=-4), int8(x.shape, Y), src=(x, int8(x.shape)), **operands)
    np.testing.assert_array_equal(found, affine.affine_int8(x, X, r, t, Y, lo=-4, axis=-1))


@pytest.mark.parametrize(
    ("operation", "function"),
    [(ElementAdd(), np.add), (ElementSub(), np.subtract), (ElementMul(), np.multiply)],
)
def test_float_arithmetic(operation: Operation, function: np.ufunc) -> None:
    a, b = RNG.normal(size=(2, 3, 4)).astype(np.float32)
    kind = float_type(3, 4)
    np.testing.assert_array_equal(run(operation, kind, lhs=(a, kind), rhs=(b, kind)), function(a, b))


def test_int8_arithmetic_rounds_once() -> None:
    a, b = random_int8(50), random_int8(50)
    found = run(ElementSub(), int8((50,), Y), lhs=(a, int8((50,))), rhs=(b, int8((50,), Y)))
    exact = (a.astype(float) - 7) * 0.5 - (b.astype(float) + 4)
    np.testing.assert_array_equal(found, np.clip(np.rint(exact) - 4, -128, 127))


def test_functions_and_conversions() -> None:
    x, kind = np.array([-3, -0.5, 0, 0.25, 9], np.float32), float_type(5)
    np.testing.assert_allclose(run(Tanh(), kind, src=(x, kind)), np.tanh(x), rtol=1e-6)
    np.testing.assert_allclose(run(Sigmoid(), kind, src=(x, kind)), 1 / (1 + np.exp(-x)), rtol=1e-6)
    np.testing.assert_array_equal(run(Clip(-1.0, 0.5), kind, src=(x, kind)), np.clip(x, -1, 0.5))
    np.testing.assert_allclose(run(Softmax(), kind, src=(x, kind)).sum(), 1.0, rtol=1e-6)
    q = run(Quantize(), int8((5,), Y), src=(x, kind))
    np.testing.assert_array_equal(q, [-34, -9, -4, -2, 86])
    back = run(Dequantize(), kind, src=(q, int8((5,), Y)))
    np.testing.assert_allclose(back, [-3, -0.5, 0, 0.2, 9], rtol=1e-6)
    np.testing.assert_array_equal(run(Rescale(), int8((5,)), src=(q, int8((5,), Y))), [-53, -3, 7, 11, 127])


def test_lookup_is_indexed_from_the_smallest_value() -> None:
    table = tables.build_table(lambda v: v, X, Y)
    q = np.arange(-128, 128).astype(np.int8)
    found = run(Lookup(), int8((256,), Y), src=(q, int8((256,))), table=(table, int8((256,), None)))
    np.testing.assert_array_equal(found, table)


def test_movement() -> None:
    x, kind = RNG.normal(size=(2, 3, 4)).astype(np.float32), float_type(2, 3, 4)
    np.testing.assert_array_equal(run(Copy(), kind, src=(x, kind)), x)
    found = run(Transpose((2, 0, 1)), float_type(4, 2, 3), src=(x, kind))
    np.testing.assert_array_equal(found, x.transpose(2, 0, 1))
    found = run(Extract((0, 1, 0), (1, 1, 3)), float_type(2, 2, 2), src=(x, kind))
    np.testing.assert_array_equal(found, x[:, 1:, ::3])
    found = run(Insert((1, 0, 2)), float_type(4, 3, 6), src=(x, kind))
    np.testing.assert_array_equal(found[1:3, :, 2:], x)
    assert (found == 77).sum() == found.size - x.size
    for given, first in ((1, 1), (9, 2), (-3, 0)):
        place = (np.array([given]), PLACE)
        found = run(InsertAt(1), float_type(2, 5, 4), src=(x, kind), first=place)
        np.testing.assert_array_equal(found[:, first : first + 3], x)
        assert (found == 77).sum() == 2 * 2 * 4


def test_splat_holds_a_real_number() -> None:
    assert run(Splat(1.5), float_type()) == 1.5
    assert run(Splat(1.5), int8((1,), Y)).tolist() == [11]
    assert run(Splat(), int8((1,), Y)).tolist() == [-4]


IMAGE, ROW = float_type(1, 4, 4, 2), float_type(4)
CONV = {"dest": IMAGE, "src": IMAGE, "filter": float_type(2, 1, 1, 2)}
FLOAT_PRODUCT = {"dest": float_type(2, 2), "src": float_type(2, 3), "filter": float_type(3, 2)}
INT8_PRODUCT = {
    "dest": float_type(2, 2),
    "src": int8((2, 3)),
    "filter": int8((3, 2), None),
    "bias": int32(2),
    "multiplier": float_type(2),
}
ROWS = {"dest": float_type(2, 3), "src": float_type(2, 3)}
INTEGERS = {
    "dest": int8((2, 3), Quantization((1.0,), (0,))),
    "scales": float_type(2, 1),
    "src": float_type(2, 3),
}
INT8_CONV = {
    "dest": int8((1, 4, 4, 2)),
    "src": int8((1, 4, 4, 2)),
    "filter": int8((2, 1, 1, 2), None),
    "bias": int32(2),
    "multiplier": float_type(2),
}
STATISTICS = {
    "src": float_type(2, 3),
    "counts": TensorType(ElementType.INT64, (65536,)),
    "range": float_type(2),
}

REFUSED: list[tuple[Operation, dict[str, TensorType], str]] = [
    (Convolution(), CONV | {"filter": float_type(2, 1, 1, 3)}, "2 channels are not 1 x 3"),
    (Convolution(strides=(2, 2)), CONV, r"dest has shape \(1, 4, 4, 2\), not \(1, 2, 2, 2\)"),
    (Convolution(strides=(2,)), CONV, "strides"),
    (Convolution(pads=(0, 0, -1, 0)), CONV, "pads"),
    (Convolution(dilations=(0, 1)), CONV, "dilations"),
    (Convolution(group=0), CONV, "group 0"),
    (Convolution(lo=1.0, hi=0.0), CONV, "not in order"),
    (Convolution(q_lo=-300), CONV, "not in order within"),
    (Convolution(), CONV | {"filter": float_type(2, 9, 9, 2)}, "the window does not fit"),
    (Convolution(), CONV | {"multiplier": float_type(2)}, "a float operation has no multiplier"),
    (Convolution(), CONV | {"dest": int8((1, 4, 4, 2))}, "dest is i8.*, not float"),
    (Convolution(), INT8_CONV | {"filter": int8((2, 1, 1, 2))}, "not plain int8"),
    (Convolution(), {k: v for k, v in INT8_CONV.items() if k != "bias"}, "an int32 bias is needed"),
    (Convolution(), {k: v for k, v in INT8_CONV.items() if k != "multiplier"}, "a multiplier is needed"),
    (Convolution(), INT8_CONV | {"bias": int32(3)}, "one a channel"),
    (FullyConnected(), {"dest": float_type(2, 2), "src": ROW, "filter": float_type(2, 2)}, "needs 2 axes"),
    (
        FullyConnected(),
        {"dest": float_type(2, 2), "src": float_type(2, 3), "filter": float_type(2, 2)},
        "src has 3 columns, filter 2 rows",
    ),
    (FullyConnected(), FLOAT_PRODUCT | {"row_scales": float_type(2, 1)}, "only sums of int8"),
    (FullyConnected(), FLOAT_PRODUCT | {"addend": float_type(2)}, "goes with scales of rows"),
    (FullyConnected(), INT8_PRODUCT | {"dest": int8((2, 2)), "row_scales": float_type(2, 1)}, "only sums"),
    (FullyConnected(), INT8_PRODUCT | {"row_scales": float_type(2)}, "one element for each row"),
    (
        FullyConnected(),
        INT8_PRODUCT | {"row_scales": float_type(2, 1), "addend": float_type(3)},
        "one a column",
    ),
    (Standardize(0.0), {"dest": ROW, "src": ROW}, "must have two axes"),
    (Standardize(0.0), ROWS | {"scale": float_type(2)}, "one element for each of a row"),
    (Standardize(0.0), ROWS | {"dest": float_type(3, 2)}, "that of src"),
    (QuantizeRows(), INTEGERS | {"dest": int8((2, 3))}, "not of scale 1"),
    (QuantizeRows(), INTEGERS | {"scales": float_type(3, 1)}, "one element for each row"),
    (QuantizeRows(), INTEGERS | {"src": float_type(2, 4)}, "as many elements as src"),
    (MaxPool((2, 2)), {"dest": float_type(1, 4, 3, 2), "src": IMAGE}, "dest has shape"),
    (MaxPool((2,)), {"dest": IMAGE, "src": IMAGE}, "kernel"),
    (MaxPool((1, 1), pads=(1, 0, 0, 0)), {"dest": IMAGE, "src": IMAGE}, "wholly in the padding"),
    (
        MaxPool((1, 1)),
        {"dest": int8((1, 1, 1, 1), Y), "src": int8((1, 1, 1, 1))},
        "differ from those of src",
    ),
    (
        AveragePool((1, 1)),
        {"dest": int8((1, 1, 1, 1)), "src": float_type(1, 1, 1, 1)},
        "all float or all integers",
    ),
    (ElementAdd(), {"dest": ROW, "lhs": ROW, "rhs": float_type(5)}, r"rhs has shape \(5,\)"),
    (ElementAdd(), {"dest": ROW, "lhs": ROW, "rhs": int32(4)}, "rhs is i32<4>, not int8"),
    (
        ElementAdd(),
        {"dest": int8((4,)), "lhs": int8((4,)), "rhs": int8((4,), None)},
        "not int8 or int16 with one scale",
    ),
    (Affine(), {"dest": ROW, "src": ROW, "scale": ROW, "shift": float_type(5)}, "shift has shape"),
    (Clip(1.0, 0.0), {"dest": ROW, "src": ROW}, "not in order"),
    (Quantize(), {"dest": ROW, "src": ROW}, "dest is float<4>, not int8"),
    (Dequantize(), {"dest": ROW, "src": ROW}, "src is float<4>, not int8"),
    (Lookup(), {"dest": int8((4,)), "src": int8((4,)), "table": int8((255,), None)}, "table has shape"),
    (Transpose((0, 0)), {"dest": float_type(2, 2), "src": float_type(2, 2)}, "does not permute 2 axes"),
    (Transpose((1, 0)), {"dest": float_type(2, 3), "src": float_type(2, 3)}, "dest has shape"),
    (Insert((1,)), {"dest": ROW, "src": ROW}, "outside of 0..4"),
    (Insert((0, 0)), {"dest": ROW, "src": ROW}, "do not fit 1 axes"),
    (InsertAt(0), {"dest": ROW, "src": float_type(5), "first": PLACE}, "does not fit into"),
    (InsertAt(1), {"dest": ROW, "src": ROW, "first": PLACE}, "axis 1 is not one of 1"),
    (InsertAt(0), {"dest": ROW, "src": ROW, "first": ROW}, "first is float<4>, not i64<1>"),
    (Extract((0,), (2,)), {"dest": ROW, "src": ROW}, "outside of 0..4"),
    (Extract((0,), (0,)), {"dest": ROW, "src": ROW}, "steps"),
    (Copy(), {"dest": int8((4,)), "src": int8((4,), Y)}, "differ"),
    (TensorView(), {"dest": float_type(5), "src": ROW}, "a reshape has 4 elements"),
    (FillPadding((1, 1, 1, 1)), {"dest": ROW}, "only four-dimensional"),
    (FillPadding((-1, 0, 0, 0)), {"dest": IMAGE}, "padding is not"),
    (Softmax(axis=1), {"dest": ROW, "src": ROW}, "axis 1"),
    (LocalResponse(0, 1.0, 0.75, 1.0), {"dest": ROW, "src": ROW}, "size 0 is not positive"),
    (LocalResponse(3, 1.0, 0.75, 1.0), {"dest": float_type(5), "src": ROW}, "dest has shape"),
    (RecordProfile(), STATISTICS | {"channel_range": float_type(2, 3)}, "go with a channel axis"),
    (RecordProfile(channel_axis=1), STATISTICS, "go with a channel axis"),
    (RecordProfile(), STATISTICS | {"counts": int32(65536)}, "counts is i32"),
]


@pytest.mark.parametrize(("operation", "types", "message"), REFUSED)
def test_types_that_do_not_fit_are_refused(
    operation: Operation, types: dict[str, TensorType], message: str
) -> None:
    with pytest.raises(TypeErrorInOperation, match=message):
        operation.verify(types)


@pytest.mark.parametrize("cls", [c for c in OPERATIONS.values() if not c.varies], ids=lambda cls: cls.opcode)
def test_declarations_hold_together(cls: type[Operation]) -> None:
    access = {spec.name: spec.access for spec in cls.signature}
    assert len(access) == len(cls.signature), "operand names are unique"
    for out_name, in_name in cls.in_place:
        assert (access[out_name], access[in_name]) == (Access.OUT, Access.IN)
    if cls.data_parallel:
        assert access["dest"] is Access.OUT
    optional = [spec.optional for spec in cls.signature]
    assert optional == sorted(optional), "optional operands come last"


def test_an_opcode_is_declared_once() -> None:
    with pytest.raises(ValueError, match="opcode copy is declared twice"):
        register(Copy)
