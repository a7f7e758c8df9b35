"""Import of what onnxruntime's tools make of LSTM by dynamic quantization.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md DynamicQuantizeLSTM

The input of all steps is rounded over its range, and the states of each step over theirs. So a direction is
one product of integers, and a loop over the steps with another.
"""

from __future__ import annotations

import numpy as np

from qglow.graph.graph import Graph, Value
from qglow.graph.ops.control import COUNT, Loop
from qglow.graph.ops.elementwise import Add, Mul
from qglow.graph.ops.functions import Sigmoid, Tanh
from qglow.graph.ops.shape import Identity, Reshape
from qglow.importer.integer_sums import import_dynamic_quantize_matmul
from qglow.importer.node import ImportNode, ImportRule
from qglow.importer.quantize import stored
from qglow.importer.recurrent import (
    DEFAULTS,
    ImportedLayer,
    LayerDirection,
    give_directions,
    lengths_of,
    operators_of,
)

_OF_LSTM = (
    "activation_alpha",
    "activation_beta",
    "activations",
    "clip",
    "direction",
    "hidden_size",
    "input_forget",
)
_SCALES = {1: 8, 2: 10}
"""Inputs with the scales of weights, by that of the weights. The next has their zero points."""


def import_dynamic_quantize_lstm(node: ImportNode) -> None:
    """Import DynamicQuantizeLSTM: weights of all gates [directions, K, 4 * H], of the input and the state."""
    x = node.value(0)
    node.require(
        x.type.is_float and node.rank() == 3, f"input is {x.type}; it must be float<steps x batch x n>"
    )
    for index in (1, 2):
        node.require(node.value(index).data is not None, f"weights '{node.value(index).name}' are computed")
        node.require(node.rank(index) == 3, f"input {index} is {node.kind(index)}; weights have three axes")
    steps, batch, inputs = x.type.shape
    layer = ImportedLayer(node, "lstm", steps, batch, node.kind(2).shape[1], batch_first=False)
    stated = node.integer("hidden_size", layer.width)
    node.require(stated == layer.width, "hidden_size differs from the weights")
    node.require(min(steps, batch, layer.width) > 0, f"input is {x.type}, which has nothing to do")
    node.require(not node.has_input(7), "it has peepholes")
    node.require(lengths_of(layer) is None, "its sequences have lengths of their own")
    operators = operators_of(node, "lstm")
    for operator in operators:
        usual = tuple(name.lower() for name in DEFAULTS["lstm"])
        node.require(operator.activations == usual, f"activations {', '.join(operator.activations)}")
        node.require(not (operator.clip or operator.input_forget), "it clips sums, or forgets what it takes")
    rows = node.emit(Reshape(shape=(steps * batch, inputs)), x, part="rows")
    results = [_results(LayerDirection(layer, each, number), rows) for number, each in enumerate(operators)]
    for output, parts in enumerate(zip(*results, strict=True)):
        give_directions(layer, list(parts), output)


def _results(direction: LayerDirection, rows: Value) -> tuple[Value, Value, Value]:
    """All hidden states [T, N, H], the last ones and what cells carry at the end, [N, H] each."""
    layer, node, name = direction.layer, direction.layer.node, direction.name
    sums = _product(direction, 1, rows)
    bias, _ = direction.biases()
    if bias is not None:
        sums = node.emit(Add(), sums, bias, part=f"{name}_sums")
    hidden, carried = direction.state(5), direction.state(6)
    states = (layer.batch, layer.width)
    if layer.steps == 1:
        hidden, carried = _step(direction, hidden, carried, sums)
        outputs = node.emit(Reshape(shape=(1, *states)), hidden, part=f"{name}_outputs")
        return outputs, hidden, carried
    given = node.emit(Reshape(shape=(layer.steps, layer.batch, layer.columns)), sums, part=f"{name}_given")
    loop = Loop(
        _body(direction, hidden, carried, sums),
        rounds=layer.steps,
        carried=2,
        scanned=(direction.operator.reverse,),
        collected=(direction.operator.reverse,),
    )
    last = node.emit(loop, None, None, hidden, carried, given, part=f"{name}_states")
    assert last.producer is not None
    _, final, outputs = last.producer.outputs
    return outputs, last, final


def _body(direction: LayerDirection, hidden: Value, carried: Value, sums: Value) -> Graph:
    """The graph of one step: its number, states before it, and the sums from its input."""
    layer, node = direction.layer, direction.layer.node
    kinds = {
        "number": COUNT,
        "hidden": hidden.type,
        "carried": carried.type,
        "given": sums.type.with_shape((layer.batch, layer.columns)),
    }
    named = [
        (node.context.part_names(node.name, node.name, f"{direction.name}_{part}")[1], kind)
        for part, kind in kinds.items()
    ]
    inputs = [Value(name, kind) for name, kind in named]
    with node.context.scope() as nodes:
        state, cell = _step(direction, *inputs[1:])
        row = node.emit(Identity(), state, part=f"{direction.name}_row")
    return Graph(f"{node.name}.{direction.name}", inputs, [state, cell, row], nodes)


def _step(direction: LayerDirection, hidden: Value, carried: Value, given: Value) -> tuple[Value, Value]:
    """Emit one step: hidden states after it, and what cells carry."""
    layer, node, name, width = direction.layer, direction.layer.node, direction.name, direction.layer.width
    own = _product(direction, 2, hidden)
    sums = node.emit(Add(), given, own, part=f"{name}_both")
    gates = [
        direction.cut(sums, [0, at * width], [layer.batch, (at + 1) * width], f"{name}_{gate}_sums")
        for at, gate in enumerate(("taken", "shown", "kept", "content"))
    ]
    taken, shown, kept = (
        node.emit(Sigmoid(), gate, part=f"{name}_{part}")
        for gate, part in zip(gates, ("taken", "shown", "kept"), strict=False)
    )
    content = node.emit(Tanh(), gates[3], part=f"{name}_content")
    old = node.emit(Mul(), kept, carried, part=f"{name}_old")
    new = node.emit(Mul(), taken, content, part=f"{name}_new")
    cell = node.emit(Add(), old, new, part=f"{name}_cell")
    bounded = node.emit(Tanh(), cell, part=f"{name}_bounded")
    return node.emit(Mul(), shown, bounded, part=f"{name}_state"), cell


def _product(direction: LayerDirection, index: int, rows: Value) -> Value:
    """Emit rows [N, K], rounded over their range, times the weights of an input for all gates."""
    layer, scales = direction.layer, _SCALES[index]
    operands = [_own(direction, each) for each in (index, scales, scales + 1)]
    fits = operands[0].type.shape == (rows.type.shape[1], layer.columns)
    layer.node.require(fits, f"input {index} does not fit {layer.columns} sums of rows {rows.type}")
    part = f"{direction.name}_products{index}"
    return layer.node.emit_by(
        import_dynamic_quantize_matmul, "DynamicQuantizeMatMul", [rows, *operands], part, _OF_LSTM
    )


def _own(direction: LayerDirection, index: int) -> Value:
    """Take what a constant holds for this direction, bytes in the form that they have."""
    node = direction.layer.node
    data, number = node.array(index, f"input {index}"), direction.number
    node.require(
        data.ndim > 0 and number < len(data), f"input {index} is {node.kind(index)}; a direction lacks"
    )
    value = node.part_constant(f"{direction.name}_input{index}", np.ascontiguousarray(data[number]))
    if stored(node, index).shift:
        node.context.unsigned.add(value.name)
    return value


CONTRIBUTED: dict[str, ImportRule] = {
    "DynamicQuantizeLSTM": ImportRule(import_dynamic_quantize_lstm, newest=1, reads_unsigned=True),
}
"""Operators of onnxruntime's own domain, com.microsoft."""
