"""Recurrent layers as ONNX nodes, which compute in float between conversions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from qglow.exporter.export import Export
from qglow.graph.operator import Operator
from qglow.graph.ops.recurrence import Recurrence

NAMES = {
    name.lower(): name
    for name in (
        "Affine",
        "Elu",
        "HardSigmoid",
        "LeakyRelu",
        "Relu",
        "ScaledTanh",
        "Sigmoid",
        "Softplus",
        "Softsign",
        "Tanh",
        "ThresholdedRelu",
    )
}
"""ONNX's names of activations."""


def _recurrence(op: Recurrence, out: Export) -> None:
    """Export an LSTM, GRU or RNN whose input is the sums that the graph computes: its W is the identity."""
    given, w, hidden, carried, bias, peepholes, lengths = (*out.inputs, *[""] * 7)[:7]
    kinds = out.node.input_types()
    assert kinds[0] is not None and kinds[2] is not None
    (steps, batch, columns), width = kinds[0].shape, kinds[2].shape[1]

    def shaped(name: str, part: str, *shape: int, output: str = "") -> str:
        if not name:
            return ""
        result = output or out.builder.fresh(f"{out.output}__{part}")
        inputs = [name, out.integers(f"{part}_shape", shape)]
        return out.builder.node("Reshape", f"{out.node.name}__{part}", inputs, result)

    # Made when the model is loaded: the file would hold its G * H squared elements.
    square = _node(out, "ConstantOfShape", "square", [out.integers("square_shape", [columns, columns])])
    identity = _node(out, "EyeLike", "diagonal", [square])
    identity = shaped(identity, "identity", 1, columns, columns)
    turned = _node(out, "Transpose", "columns", [w], perm=[1, 0])
    first = shaped(carried, "carried", 1, batch, width)
    # What a GRU or a plain layer carries is its hidden state in float. onnxruntime (1.32) refuses a
    # DequantizeLinear of int8 that only a Reshape reads, unless the integers are a constant.
    initial = shaped(hidden, "hidden", 1, batch, width) if op.cell == "lstm" else first
    inputs = [
        given,
        identity,
        shaped(turned, "weights", 1, columns, width),
        _biases(out, bias, columns, width),
        lengths,
        initial,
        first if op.cell == "lstm" else "",
        shaped(peepholes, "peepholes", 1, 3 * width),
    ]
    parts = ("steps", "last", "content")[: 3 if op.cell == "lstm" else 2]
    results = [out.builder.fresh(f"{out.output}__{part}") for part in parts]
    attributes = _attributes(op) | {"hidden_size": width}
    out.builder.node_of_several(op.cell.upper(), out.node.name, inputs, results, **attributes)
    rows = shaped(results[0], "rows", steps, batch, width)
    if lengths:
        # ONNX gives zeros beyond the end of a sequence, the graph the state that the sequence has there.
        held = initial if op.reverse else shaped(results[1], "held", 1, batch, width)
        counts = shaped(lengths, "counts", 1, batch, 1)
        times = out.builder.constant(
            f"{out.node.name}__times", np.arange(steps, dtype=np.int32).reshape(-1, 1, 1)
        )
        within = _node(out, "Less", "within", [times, counts])
        rows = _node(out, "Where", "kept", [within, rows, held])
    both = [rows, initial] if op.reverse else [initial, rows]
    out.builder.node("Concat", f"{out.node.name}__states", both, out.output, axis=0)
    shaped(results[-1], "carried_on", batch, width, output=out.node.outputs[1].name)


def _node(out: Export, op_type: str, part: str, inputs: Sequence[str], **attributes: Any) -> str:
    result = out.builder.fresh(f"{out.output}__{part}")
    return out.builder.node(op_type, f"{out.node.name}__{part}", inputs, result, **attributes)


def _biases(out: Export, bias: str, columns: int, width: int) -> str:
    """All biases: that of the last sum from the state is the only one that the given sums do not hold."""
    if not bias:
        return ""
    zeros = out.builder.constant(f"{out.node.name}__zeros", np.zeros(2 * columns - width, np.float32))
    whole = _node(out, "Concat", "biases", [zeros, bias], axis=0)
    axes = out.integers("direction_axis", [0])
    return _node(out, "Unsqueeze", "both_biases", [whole, axes])


def _attributes(op: Recurrence) -> dict[str, Any]:
    found: dict[str, Any] = {
        "direction": "reverse" if op.reverse else "forward",
        "activations": [NAMES[name] for name in op.activations],
    }
    for index, which in enumerate(("alpha", "beta")):
        numbers = [given[index] for given in op.numbers if index < len(given)]
        if numbers:
            found[f"activation_{which}"] = numbers
    if op.clip:
        found["clip"] = op.clip
    if op.cell == "lstm":
        found["input_forget"] = int(op.input_forget)
    if op.cell == "gru":
        found["linear_before_reset"] = int(op.linear_before_reset)
    return found


EXPORTS: dict[type[Operator], Callable[[Any, Export], None]] = {Recurrence: _recurrence}
