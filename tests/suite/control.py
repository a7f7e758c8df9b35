"""Branches and loops: conditions, counts, slices in both directions, nesting, products and int8 inside."""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array, ElementType, Shape, TensorType, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Value
from qglow.graph.ops.control import COUNT, FLAG, If, Loop
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add, Mul, Sub
from qglow.graph.ops.functions import Tanh
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.logic import Compare
from qglow.graph.ops.quantize import Dequantize, Quantize
from qglow.graph.ops.reduce import ReduceMax
from qglow.graph.ops.shape import Cast, Reshape
from qglow.numerics.weights import quantize_bias, quantize_weights, weight_scales
from tests.suite.problem import Drawing, Maker, Problem, moderate


def given(drawing: Drawing, name: str, kind: TensorType, data: Array) -> Value:
    """An input of a problem with these contents."""
    drawing.inputs[name] = np.asarray(data, kind.element.dtype)
    return drawing.builder.input(name, kind)


def real(drawing: Drawing, *shape: int) -> Value:
    """A float input of moderate values."""
    name = f"x{len(drawing.inputs)}"
    return given(drawing, name, float_type(*shape), moderate(drawing.random, shape))


def is_positive(builder: GraphBuilder, x: Value, level: float = 0.0) -> Value:
    """Whether the largest element of a value is above a level, as a scalar."""
    largest = builder.node(ReduceMax(tuple(range(len(x.type.shape)))), x)
    largest = builder.node(Reshape(()), largest)
    return builder.node(
        Compare("greater"),
        largest,
        builder.constant("level", np.float32(level)[()] * np.ones((), np.float32)),
    )


def adding(*before: TensorType) -> Graph:
    """A region that adds its last two inputs."""
    builder = GraphBuilder("adding")
    for number, kind in enumerate(before):
        builder.input(f"before{number}", kind)
    x, y = (builder.input(name, float_type(3)) for name in "xy")
    return builder.finish(builder.node(Add(), x, y))


def branch(kind: str, sign: float) -> Maker:
    """A branch by the sign of an input, whose bodies do different things to what they capture."""

    def body(name: str, random: np.random.Generator, shape: Shape, first: bool) -> Graph:
        builder = GraphBuilder(name)
        x, y = (builder.input(label, float_type(*shape)) for label in "xy")
        if kind == "same":
            return builder.finish(x, y) if first else builder.finish(y, y)
        if kind == "constant":
            data = random.normal(size=shape).astype(np.float32)
            return builder.finish(builder.constant("c", data), builder.node(Add(), x, y))
        w = builder.constant("w", random.normal(size=(shape[1], shape[1])).astype(np.float32))
        product = builder.node(Gemm(), x, w, None)
        if first:
            return builder.finish(builder.node(Tanh(), product), builder.node(Mul(), product, y))
        return builder.finish(builder.node(Sub(), y, x), x)

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"branch_{kind}", random)
        shape = (3, 7)
        x, y, s = real(drawing, *shape), real(drawing, *shape), real(drawing, 4)
        drawing.inputs[s.name] = np.float32(sign) * np.ones(4, np.float32)
        bodies = [body(name, random, shape, name == "yes") for name in ("yes", "no")]
        builder = drawing.builder
        mixed = builder.node(Add(), x, y)
        node = builder.append(If(*bodies), is_positive(builder, s), mixed, y)
        return drawing.finish(
            builder.node(Add(), node.outputs[0], mixed), node.outputs[1], exact=kind != "product"
        )

    return make


def scan(rounds: int, back: tuple[bool, bool]) -> Maker:
    """A loop over slices of two values, which carries one and collects two."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"scan_{rounds}", random)
        body = GraphBuilder("body")
        number, state = body.input("round", COUNT), body.input("state", float_type(2, 5))
        a, b, k = (body.input(n, float_type(*s)) for n, s in (("a", (5,)), ("b", ()), ("k", (2, 5))))
        whole = body.node(Cast(to=ElementType.FLOAT), number)
        following = body.node(Add(), body.node(Mul(), state, k), body.node(Mul(), a, b))
        body_graph = body.finish(following, body.node(Add(), following, whole), a)
        state0, xs, ys = real(drawing, 2, 5), real(drawing, rounds, 5), real(drawing, rounds)
        k0 = drawing.builder.node(Tanh(), real(drawing, 2, 5))
        loop = Loop(body_graph, rounds=rounds, carried=1, scanned=back, collected=back[::-1])
        node = drawing.builder.append(loop, None, None, state0, xs, ys, k0)
        return drawing.finish(*node.outputs)

    return make


def swap(limit: int | None, rounds: int | None, start: bool | None = None) -> Maker:
    """A loop that carries two values of one type crosswise, as often as an operand says."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"swap_{limit}_{rounds}", random)
        body = GraphBuilder("body")
        body.input("round", COUNT)
        a, b = (body.input(n, float_type(3, 11)) for n in "ab")
        graph = body.finish(b, body.node(Add(), a, b))
        ends = [
            None if limit is None else given(drawing, "limit", COUNT, np.array(limit)),
            None if start is None else given(drawing, "start", FLAG, np.array(start)),
        ]
        values = [real(drawing, 3, 11), drawing.builder.constant("one", np.ones((3, 11), np.float32))]
        node = drawing.builder.append(Loop(graph, rounds=rounds, carried=2), *ends, *values)
        return drawing.finish(*node.outputs)

    return make


def until(level: float) -> Maker:
    """A loop that a condition on what it carries ends, with a branch inside of it."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing("until", random)
        bodies = []
        for name, operator in (("up", Add()), ("down", Sub())):
            inner = GraphBuilder(name)
            x, y = (inner.input(n, float_type(9)) for n in "xy")
            bodies.append(inner.finish(inner.node(operator, x, y)))
        body = GraphBuilder("body")
        body.input("round", COUNT)
        state, count, step = (body.input(n, float_type(9)) for n in ("state", "count", "step"))
        small = body.node(
            Compare("less"),
            body.node(Reshape(()), body.node(ReduceMax((0,)), state)),
            body.constant("level", np.full((), level, np.float32)),
        )
        moved = body.node(If(*bodies), is_positive(body, state, level / 2), state, step)
        following = body.node(Add(), moved, body.node(Mul(), step, step))
        counted = body.node(Add(), count, step)
        graph = body.finish(small, following, counted)
        step0 = given(drawing, "step", float_type(9), np.full(9, 0.25))
        values = [real(drawing, 9), drawing.builder.constant("none", np.zeros(9, np.float32)), step0]
        node = drawing.builder.append(
            Loop(graph, rounds=50, carried=2, conditional=True), None, None, *values
        )
        return drawing.finish(*node.outputs)

    return make


def cell(int8: bool, width: int) -> Maker:
    """A recurrent cell whose product, float or int8, is in the body."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"cell_{'int8' if int8 else 'float'}", random)
        body = GraphBuilder("body")
        body.input("round", COUNT)
        state, x = (body.input(n, float_type(2, width)) for n in "sx")
        w = (random.normal(size=(width, width)) * width**-0.5).astype(np.float32)
        bias = random.normal(size=width).astype(np.float32)
        total = body.node(Add(), state, x)
        if int8:
            kind = total.type.quantized(drawing.parameters(3))
            assert kind.quantization is not None
            scales = weight_scales(w, bias, kind.quantization.scale, 1)
            stored = body.constant(
                "w", quantize_weights(w, scales, 1), type(kind.quantization).per_channel(scales, 1)
            )
            offsets = body.constant("bias", quantize_bias(bias, kind.quantization.scale, scales))
            integers = body.node(Quantize(), total, output_types=[kind])
            product = body.node(
                Gemm(),
                integers,
                stored,
                offsets,
                output_types=[float_type(2, width).quantized(drawing.parameters(-5))],
            )
            product = body.node(Dequantize(), product)
        else:
            product = body.node(Gemm(), total, body.constant("w", w), body.constant("bias", bias))
        following = body.node(Tanh(), product)
        graph = body.finish(following, following)
        loop = Loop(graph, rounds=6, carried=1, scanned=(False,), collected=(False,))
        node = drawing.builder.append(loop, None, None, real(drawing, 2, width), real(drawing, 6, 2, width))
        return drawing.finish(*node.outputs, exact=int8)

    return make


def images(random: np.random.Generator) -> Problem:
    """A loop that convolves an image again and again."""
    drawing = Drawing("images", random)
    body = GraphBuilder("body")
    body.input("round", COUNT)
    x = body.input("x", float_type(1, 4, 6, 5))
    w = body.constant("w", (random.normal(size=(4, 4, 3, 3)) * 0.2).astype(np.float32))
    y = body.node(Conv(pads=(1, 1, 1, 1)), x, w, None)
    graph = body.finish(body.node(Add(), body.node(Tanh(), y), x))
    node = drawing.builder.append(Loop(graph, rounds=3, carried=1), None, None, real(drawing, 1, 4, 6, 5))
    return drawing.finish(*node.outputs, exact=False)


def numbered(random: np.random.Generator) -> Problem:
    """A loop that carries nothing: rows of what it captures plus the number of the round."""
    drawing = Drawing("numbered", random)
    body = GraphBuilder("body")
    number, x = body.input("n", COUNT), body.input("x", float_type(3))
    row = body.node(Add(), x, body.node(Cast(to=ElementType.FLOAT), number))
    loop = Loop(body.finish(row), rounds=4, carried=0, collected=(False,))
    node = drawing.builder.append(loop, None, None, real(drawing, 3))
    return drawing.finish(*node.outputs)


PROBLEMS: list[Maker] = [
    *(branch(kind, sign) for kind in ("same", "constant", "product") for sign in (1.0, -1.0)),
    *(
        scan(rounds, back)
        for rounds, back in ((1, (False, True)), (4, (True, False)), (7, (True, True)), (0, (False, False)))
    ),
    swap(5, None),
    swap(0, None),
    swap(-3, None),
    swap(9, 4),
    swap(None, 3, True),
    swap(None, 4, False),
    until(3.0),
    until(-1e9),
    cell(False, 16),
    cell(True, 16),
    cell(True, 37),
    images,
    numbered,
]
