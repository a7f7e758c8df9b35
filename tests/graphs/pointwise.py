"""Operators of single elements, and of rows of them."""

from __future__ import annotations

import numpy as np

from tests.graphs.builder import Builder, Unfit, Value, makes

EXACT_UNARY = ("Abs", "Identity", "Neg", "Relu")
STEPS = ("Ceil", "Floor", "Round", "Sign")


@makes(*EXACT_UNARY)
def exact_unary(b: Builder, op: str) -> None:
    b.add(op, [b.pick((0, 5)).name], exact=True)


@makes(*STEPS, "Hardmax")
def step(b: Builder, op: str) -> None:
    b.add(op, [b.pick((1, 4), exact=True, least=1).name], exact=True)


@makes("IsInf", "IsNaN")
def classified(b: Builder, op: str) -> None:
    b.add(op, [b.pick((0, 5), exact=True).name], exact=True)


@makes(
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Erf", "Exp", "Gelu", "HardSwish",
    "Log", "Mish", "Reciprocal", "Sigmoid", "Sin", "Sinh", "Softplus", "Sqrt", "Swish", "Tan", "Tanh",
)  # fmt: skip
def function(b: Builder, op: str) -> None:
    b.add(op, [b.pick((0, 5)).name])


@makes("Celu", "Elu", "LeakyRelu", "HardSigmoid", "Selu", "Shrink", "ThresholdedRelu")
def with_alpha(b: Builder, op: str) -> None:
    name = "lambd" if op == "Shrink" else "alpha"
    jumps = op in ("Shrink", "ThresholdedRelu")
    b.add(op, [b.pick((0, 5), exact=jumps).name], **({name: b.choice((0.5, 0.1, 2.0))} if b.chance() else {}))


def second(b: Builder, first: Value, exact: bool = False, widens: bool = True) -> str:
    """Another operand: the same value, one that broadcasts, or a constant.

    widens: the result may have a larger shape than the first.
    """
    shape, dtype = first.array.shape, first.array.dtype
    others = [
        v
        for v in b.values
        if v.array.dtype == dtype and (v.exact or not exact) and _fits(v.array.shape, shape, widens)
    ]
    if others and b.chance():
        return str(b.choice(others).name)
    kept = tuple(1 if b.chance(3) else size for size in shape)[b.number(0, len(shape)) :]
    array = b.floats(kept, 2.0) if dtype == np.float32 else b.rng.integers(0, 4, kept)
    return b.constant(array, dtype.type)


def _fits(one: tuple[int, ...], other: tuple[int, ...], widens: bool) -> bool:
    try:
        shape = np.broadcast_shapes(one, other)
        return len(shape) <= 5 and (widens or shape == other)
    except ValueError:
        return False


@makes("Add", "Div", "Mul", "Sub", "Pow", "PRelu")
def arithmetic(b: Builder, op: str) -> None:
    dtype = np.int64 if op in ("Add", "Mul", "Sub") and b.chance(10) else np.float32
    first = b.pick((0, 5), dtype)
    operands = [first.name, second(b, first, widens=op != "PRelu")]
    b.add(op, operands[::-1] if op != "PRelu" and b.chance() else operands, exact=dtype == np.int64)


@makes("Max", "Min", "Mean", "Sum")
def variadic(b: Builder, op: str) -> None:
    first = b.pick((0, 5))
    b.add(op, [first.name, *(second(b, first) for _ in range(b.number(0, 2)))], exact=op in ("Max", "Min"))


@makes("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
def comparison(b: Builder, op: str) -> None:
    if b.opset < 11:
        raise Unfit
    first = b.pick((0, 5), exact=True)
    b.add(op, [first.name, second(b, first, exact=True)], exact=True)


@makes("And", "Or", "Xor", "Not")
def logic(b: Builder, op: str) -> None:
    first = b.pick((1, 4), np.bool_, exact=True)
    b.add(op, [first.name, *([] if op == "Not" else [second(b, first, exact=True)])], exact=True)


@makes("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "Mod")
def integers(b: Builder, op: str) -> None:
    first = b.pick((1, 4), b.choice((np.int32, np.int64)), exact=True)
    constant = b.constant(b.rng.integers(1, 9, first.array.shape), first.array.dtype.type)
    b.add(op, [first.name, *([] if op == "BitwiseNot" else [constant])], exact=True)


@makes("Where")
def where(b: Builder, op: str) -> None:
    condition = b.pick((1, 4), np.bool_, exact=True)
    first = b.constant(b.floats(condition.array.shape)) if b.chance(3) else b.pick((0, 4)).name
    b.add(op, [condition.name, first, b.constant(np.float32(0.5))], exact=True)


@makes("Clip")
def clip(b: Builder, op: str) -> None:
    value = b.pick((0, 5))
    low, high = b.choice(((-0.5, 0.7), (0.0, 6.0), (-1.0, None), (None, 0.3)))
    if b.has_attribute(op, "min"):
        b.add(op, [value.name], exact=True, min=low, max=high)
    else:
        ends = ["" if end is None else b.constant(np.float32(end)) for end in (low, high)]
        b.add(op, [value.name, *ends], exact=True)


@makes("Cast")
def cast(b: Builder, op: str) -> None:
    to = b.choice((np.int32, np.int64, np.bool_, np.float64, np.uint8))
    value = b.pick((0, 5), exact=True)
    if to is np.uint8:
        value = b.add("Abs", [value.name], exact=True)[0]
    b.converted(value, to) if to is not np.bool_ else b.add(op, [value.name], exact=True, to=9)


@makes("CastLike")
def cast_like(b: Builder, op: str) -> None:
    b.add(op, [b.pick((0, 4), exact=True).name, b.constant(np.zeros(1), np.int32)], exact=True)


@makes("Dropout")
def dropout(b: Builder, op: str) -> None:
    b.add(op, [b.pick((0, 5)).name], exact=True)


@makes("Softmax", "LogSoftmax")
def softmax(b: Builder, op: str) -> None:
    value = b.pick((1, 4), least=1)
    b.add(
        op,
        [value.name],
        axis=b.number(0, value.rank - 1) - (value.rank if b.opset >= 11 and b.chance() else 0),
    )


@makes("CumSum")
def running(b: Builder, op: str) -> None:
    value = b.pick((1, 4), least=1)
    axis = b.constant(b.number(0, value.rank - 1), np.int64)
    b.add(op, [value.name, axis], exclusive=b.number(0, 1), reverse=b.number(0, 1))


REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
    "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip


@makes(*REDUCTIONS)
def reduction(b: Builder, op: str) -> None:
    value = b.pick((1, 5), least=1)
    axes = sorted({b.number(0, value.rank - 1) for _ in range(b.number(1, 2))}, reverse=True)
    inputs, attributes = ([], {}) if b.chance(5) else b.listed(op, "axes", axes)
    b.add(
        op,
        [value.name, *inputs],
        exact=op in ("ReduceMax", "ReduceMin"),
        keepdims=b.number(0, 1),
        **attributes,
    )


@makes("ArgMax", "ArgMin")
def best(b: Builder, op: str) -> None:
    value = b.pick((1, 4), exact=True, least=1)
    b.add(op, [value.name], exact=True, axis=b.number(0, value.rank - 1), keepdims=b.number(0, 1))


@makes("TopK")
def top(b: Builder, op: str) -> None:
    value = b.pick((1, 4), exact=True, least=1)
    axis = b.number(0, value.rank - 1)
    k = b.number(1, value.array.shape[axis])
    inputs, attributes = b.listed(op, "k", [k])
    b.add(op, [value.name, *inputs], outputs=2, exact=True, axis=axis, **({"k": k} if attributes else {}))
