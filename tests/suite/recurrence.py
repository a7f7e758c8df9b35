"""Recurrent layers of every cell, float and int8: widths around a vector, lengths, directions, settings."""

from __future__ import annotations

from typing import Any

import numpy as np

from qglow.core.types import ElementType, Quantization, TensorType, float_type
from qglow.graph.ops.quantize import Quantize
from qglow.graph.ops.recurrence import Recurrence
from qglow.numerics.scalar.cells import ACTIVATIONS
from qglow.numerics.weights import quantize_weights, weight_scales
from tests.suite.problem import Drawing, Maker, Problem, moderate

DEFAULTS = {"lstm": ("sigmoid", "tanh", "tanh"), "gru": ("sigmoid", "tanh"), "rnn": ("tanh",)}


def layer(
    cell: str,
    steps: int,
    batch: int,
    width: int,
    int8: bool,
    extras: tuple[str, ...] = (),
    activations: tuple[str, ...] = (),
    zero_point: int | None = None,
    **settings: Any,
) -> Maker:
    """A layer with random states; `extras`: optional operands that it has."""

    def make(random: np.random.Generator) -> Problem:
        drawing = Drawing(f"{cell}_{'int8' if int8 else 'float'}", random)
        names = activations or DEFAULTS[cell]
        operator = Recurrence(cell, names, tuple(ACTIVATIONS[n].numbers for n in names), **settings)
        columns = operator.gates * width

        def real(*shape: int) -> Any:
            value = drawing.real(*shape)
            drawing.inputs[value.name] = moderate(random, shape) * np.float32(0.5)
            return value

        given, hidden = real(steps, batch, columns), real(batch, width)
        carried = real(batch, width) if cell == "lstm" else hidden
        w = drawing.weights(width, columns) * np.float32(width**-0.5)
        results = [float_type(steps + 1, batch, width), float_type(batch, width)]
        if int8:
            zero = int(random.choice([-128, 0, 5, 127])) if zero_point is None else zero_point
            parameters = Quantization.per_tensor(2.0**-6, zero)
            hidden = drawing.builder.node(
                Quantize(), hidden, output_types=[hidden.type.quantized(parameters)]
            )
            scales = weight_scales(w, None, parameters.scale, 1)
            kind = Quantization.per_channel(scales, 1)
            stored = drawing.builder.constant("w8", quantize_weights(w, scales, 1), kind)
            results[0] = TensorType(ElementType.INT8, results[0].shape, parameters)
        elif "weights" in extras:
            stored = real(width, columns)
        else:
            stored = drawing.builder.constant("w", w)
        made = {"bias": drawing.weights(width), "peepholes": drawing.weights(3 * width)}
        made["lengths"] = random.integers(0 if "empty" in extras else 1, steps + 1, batch).astype(np.int32)
        optional = [drawing.builder.constant(n, made[n]) if n in extras else None for n in made]
        node = drawing.builder.append(
            operator, given, stored, hidden, carried, *optional, output_types=results
        )
        return drawing.finish(*node.outputs, exact=int8)

    return make


LAYERS: list[Maker] = [
    layer(cell, *case, int8, **more)
    for int8 in (False, True)
    for cell, *case, more in [
        ("lstm", 5, 1, 16, {}),
        ("lstm", 3, 2, 37, {"extras": ("peepholes", "lengths"), "reverse": True, "clip": 0.75}),
        ("lstm", 1, 7, 5, {"input_forget": True}),
        ("lstm", 4, 3, 64, {"activations": ("hardsigmoid", "softsign", "scaledtanh")}),
        ("gru", 5, 1, 16, {}),
        ("gru", 6, 5, 21, {"extras": ("lengths",)}),
        ("gru", 3, 2, 40, {"reverse": True, "linear_before_reset": True, "extras": ("bias", "lengths")}),
        ("gru", 2, 1, 1, {"linear_before_reset": True}),
        ("rnn", 4, 9, 33, {}),
        ("rnn", 2, 1, 3, {"activations": ("leakyrelu",), "clip": 0.5, "reverse": True}),
        ("rnn", 3, 2, 18, {"activations": ("thresholdedrelu",), "extras": ("lengths",)}),
        ("rnn", 3, 2, 18, {"activations": ("affine",)}),
    ]
] + [
    layer("gru", 3, 6, 19, False, ("weights", "lengths")),
    layer("lstm", 2, 1, 32, False, ("weights",)),
]

PROBLEMS: list[Maker] = [
    *LAYERS,
    *(layer("rnn", 2, 9, 17, int8, ("lengths", "empty")) for int8 in (False, True)),
]
