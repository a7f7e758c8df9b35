"""Attention: two products with Softmax, factors, masks and shared heads between them, in many sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from qglow.core.types import ElementType, TensorType
from qglow.graph.graph import Value
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Add, Div, Mul
from qglow.graph.ops.linear import MatMul
from qglow.graph.ops.movement import Expand
from qglow.graph.ops.selection import Where
from qglow.graph.ops.shape import Reshape, Transpose
from qglow.graph.ops.softmax import Softmax
from tests.suite.problem import Drawing, Maker, Problem, moderate


@dataclass(frozen=True)
class Form:
    """Sizes and parts of an attention.

    leading: stacks of queries. shared: how many of them read one stack of keys. steps: between the products,
    of `scale`, `divide`, `add`, `choose` and `hide`. wide: whether masks have rows, and heads of their own.
    rows_together: heads that share keys are rows of one product; else keys are repeated.
    zeros: zero points of int8 queries and keys; None where they are float.
    """

    leading: tuple[int, ...]
    rows: int
    keys: int
    depth: int
    width: int
    steps: tuple[str, ...] = ("scale",)
    shared: int = 1
    wide: bool = False
    masked_to_zero: bool = False
    rows_together: bool = False
    keys_stand: bool = False
    zeros: tuple[int, int] | None = None

    @property
    def stacks(self) -> tuple[int, ...]:
        """Stacks of keys."""
        return (*self.leading[:-1], self.leading[-1] // self.shared)


FORMS: list[Form] = [
    Form((1, 3), 5, 19, 16, 8, ("scale", "add")),
    Form((2, 2), 17, 33, 20, 24, ("divide", "add"), wide=True),
    Form((4,), 9, 16, 7, 5, ()),
    Form((1, 1), 1, 40, 64, 64, ("scale",)),
    Form((1, 4), 1, 37, 18, 33, ("scale", "add"), shared=2),
    Form((1, 6), 12, 21, 16, 16, ("scale", "choose", "add"), shared=3, wide=True),
    Form((2, 4), 3, 50, 32, 16, ("divide", "hide"), shared=2, rows_together=True),
    Form((1, 2), 2, 130, 17, 16, ("scale", "add", "hide"), masked_to_zero=True, wide=True),
    Form((3, 2), 8, 1, 4, 3, ("add",), keys_stand=True),
    Form((1, 2), 33, 64, 64, 64, ("scale", "choose"), keys_stand=True, wide=True),
    Form((1, 3), 5, 19, 16, 8, ("scale", "add"), zeros=(3, -7)),
    Form((2, 2), 17, 33, 70, 24, ("divide", "add"), wide=True, zeros=(-128, 0)),
    Form((4,), 9, 16, 7, 5, (), zeros=(0, 5)),
    Form((1, 4), 1, 37, 18, 33, ("scale", "add"), shared=2, zeros=(-5, 127)),
    Form((2, 4), 3, 50, 32, 16, ("divide", "hide"), shared=2, rows_together=True, zeros=(0, 0)),
    Form((1, 1), 1, 40, 64, 64, ("scale",), zeros=(100, -100)),
    Form((1, 2), 33, 64, 64, 64, ("scale", "choose"), keys_stand=True, wide=True, zeros=(9, 9)),
]


def attention(form: Form) -> Maker:
    """Of moderate floats; masks hide about a third of the keys, and all of them from one query."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing("attention", random)
        b = drawing.builder

        def real(*shape: int, zero_point: int | None = None) -> Value:
            name = f"x{len(drawing.inputs)}"
            drawing.inputs[name] = moderate(random, shape)
            value = b.input(name, TensorType(ElementType.FLOAT, shape))
            return value if zero_point is None else drawing.quantized(value, zero_point)

        of_queries, of_keys = (None, None) if form.zeros is None else form.zeros
        queries = real(*form.leading, form.rows, form.depth, zero_point=of_queries)
        if form.keys_stand:
            keys = real(*form.stacks, form.depth, form.keys, zero_point=of_keys)
        else:
            rank = len(form.leading) + 2
            stored = real(*form.stacks, form.keys, form.depth, zero_point=of_keys)
            swapped = Transpose(perm=(*range(rank - 2), rank - 1, rank - 2))
            keys = stored if form.rows_together else _repeated(drawing, form, stored)
            keys = _moved(drawing, swapped, keys)
        values = real(*form.stacks, form.keys, form.width)
        if form.rows_together:
            together = Reshape(shape=(*form.stacks, form.shared * form.rows, form.depth))
            queries = _moved(drawing, together, queries)
        else:
            values = _repeated(drawing, form, values)
        (kind,) = MatMul().infer([queries.type, keys.type])
        scores = b.node(MatMul(), queries, keys, output_types=[TensorType(ElementType.FLOAT, kind.shape)])
        if form.rows_together:
            scores = b.node(Reshape(shape=(*form.leading, form.rows, form.keys)), scores)
        for step in form.steps:
            scores = _stepped(drawing, form, step, scores)
        shares = b.node(Softmax(axis=-1, masked_to_zero=form.masked_to_zero), scores)
        if form.rows_together:
            shares = b.node(Reshape(shape=(*form.stacks, form.shared * form.rows, form.keys)), shares)
        return drawing.finish(b.node(MatMul(), shares, values), exact=False)

    return make


def _repeated(drawing: Drawing, form: Form, value: Value) -> Value:
    """Keys or values, for each of the stacks of queries that share them."""
    if form.shared == 1:
        return value
    size = value.type.shape[-2:]
    apart = _moved(drawing, Reshape(shape=(*form.stacks, 1, *size)), value)
    many = _moved(drawing, Expand(shape=(*form.stacks, form.shared, *size)), apart)
    return _moved(drawing, Reshape(shape=(*form.leading, *size)), many)


def _moved(drawing: Drawing, movement: Operator, value: Value) -> Value:
    """A value after a movement, with its type's parameters."""
    (kind,) = movement.infer([value.type])
    kind = kind if value.type.quantization is None else kind.quantized(value.type.quantization)
    return drawing.builder.node(movement, value, output_types=[kind])


def _stepped(drawing: Drawing, form: Form, step: str, scores: Value) -> Value:
    """Scores after one step."""
    b = drawing.builder
    if step in ("scale", "divide"):
        number = math.sqrt(form.depth) if step == "divide" else 1 / math.sqrt(form.depth)
        constant = b.constant(f"number_{step}", np.array(number, np.float32))
        return b.node(Div() if step == "divide" else Mul(), scores, constant)
    shape = (*form.leading, form.rows, form.keys) if form.wide else (form.keys,)
    hidden = drawing.random.random(shape) < 0.3
    if form.wide:
        hidden.reshape(-1, form.keys)[0] = True
    if step == "add":
        addend = np.where(hidden, np.finfo(np.float32).min, moderate(drawing.random, shape))
        drawing.inputs["addend"] = addend.astype(np.float32)
        return b.node(Add(), b.input("addend", TensorType(ElementType.FLOAT, shape)), scores)
    drawing.inputs["condition"] = hidden if step == "hide" else ~hidden
    condition = b.input("condition", TensorType(ElementType.BOOL, shape))
    other = b.constant("other", np.array(-np.inf if form.masked_to_zero else -1e9, np.float32))
    return b.node(Where(), condition, *((other, scores) if step == "hide" else (scores, other)))


PROBLEMS: list[Maker] = [attention(form) for form in FORMS]
