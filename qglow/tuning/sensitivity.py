"""How much of the error at a model's outputs comes from where.

Quantization puts errors into a network in three places: activations are rounded, activations are
clipped to their range, weights are rounded. Each is small, so that together they do what they do
one by one. So every one is put into the float network alone, as it is on real samples, and what
arrives at the outputs is measured. That takes a run of the float network for every place and sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qglow.core.types import Array, Quantization
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.operator import Accumulate, SameAs, Unify
from qglow.numerics.quantize import dequantize_by, quantize_by
from qglow.numerics.weights import dequantize_weights
from qglow.quantization.weights import output_axis
from qglow.report.tensors import counterpart
from qglow.toolchain import CompileOptions
from qglow.toolchain.observation import observe
from qglow.tuning.injection import Injection

ROUNDING, CLIPPING, WEIGHTS = "rounding", "clipping", "weights"


@dataclass(frozen=True, slots=True)
class Source:
    """A place where quantization puts an error in.

    value: of the int8 graph, whose activation is rounded or clipped; or, for weights, the result of
    the node that has them. kind: ROUNDING, CLIPPING or WEIGHTS. noise: power of the error that it
    alone makes at the outputs, relative to the power of the outputs.
    """

    value: str
    kind: str
    noise: float


@dataclass(frozen=True)
class Sensitivity:
    """All places, over this many samples."""

    samples: int
    sources: tuple[Source, ...]

    @property
    def noise(self) -> float:
        """Their sum: what is predicted for all together."""
        return sum(source.noise for source in self.sources)

    @property
    def sqnr_db(self) -> float:
        """The predicted SQNR of the outputs, in dB."""
        return decibels(self.noise)

    def of(self, value: str, *kinds: str) -> float:
        """The noise of one value from these kinds of places, or from all."""
        return sum(s.noise for s in self.sources if s.value == value and (not kinds or s.kind in kinds))


def decibels(noise: float) -> float:
    """SQNR in dB for noise relative to the signal."""
    return math.inf if noise <= 0.0 else -10.0 * math.log10(noise)


def sensitivity(
    float_graph: Graph,
    int8_graph: Graph,
    runs: Sequence[Mapping[str, Array]],
    options: CompileOptions | None = None,
    advance: Callable[[int], None] = lambda runs: None,
) -> Sensitivity:
    """Where the error of an int8 graph comes from, on inputs of the float graph that it stands for.

    `advance` is told each run that is done. Memory is that of a few sets of all activations.
    """
    names = counterpart(float_graph, int8_graph)
    real = {value.name: value for value in float_graph.values() if not value.is_constant}
    places = {v: real[names[v.name]] for v in int8_values(int8_graph) if names.get(v.name) in real}
    rounded, results = _with_integer_weights(float_graph, int8_graph)
    twins = {value.name: value for value in rounded.values()}
    watched = list(dict.fromkeys([*(twins[v.name] for v in places.values()), *results.values()]))
    watched += [twins[name] for name in results if twins[name] not in watched]
    injection = Injection(float_graph, [*places.values(), *(real[name] for name in results)], options)
    produced = {names[v.name]: v.name for node in int8_graph.nodes for v in node.outputs if v.name in names}
    noise: dict[tuple[str, str], float] = {}
    signal = 0.0
    for inputs, found in zip(runs, observe(rounded, watched, runs, options), strict=True):
        reals = {value.name: array for value, array in found.items()}
        base = injection(inputs, {})
        signal += _power(base.values())
        for value, twin in places.items():
            for kind, error in _activation_errors(value, reals[twin.name]):
                _add(noise, (value.name, kind), injection.distance(inputs, {twin.name: error}, base))
        for name, result in results.items():
            error = reals[result.name] - reals[name]
            key = (produced.get(name, name), WEIGHTS)
            _add(noise, key, injection.distance(inputs, {name: error}, base))
        advance(1)
    return Sensitivity(
        len(runs), tuple(Source(*key, power / signal if signal else 0.0) for key, power in noise.items())
    )


def int8_values(graph: Graph) -> Iterator[Value]:
    """Values of an int8 graph whose tensors get onto their grid there, and are not only moved on it."""
    for node in graph.nodes:
        moves = isinstance(node.operator.policy, SameAs | Unify)
        kinds = {operand.type.quantization for operand in node.inputs if operand is not None}
        for value in node.outputs:
            if value.type.is_quantized and not (moves and kinds == {value.type.quantization}):
                yield value


def _with_integer_weights(float_graph: Graph, int8_graph: Graph) -> tuple[Graph, dict[str, Value]]:
    """The float graph with a second node beside each that has int8 weights, and what these give by name.

    The second node reads the same operands, and has the weights and the bias that the integers stand for.
    """
    graph = float_graph.copy()
    nodes = {node.name: node for node in graph.nodes}
    results: dict[str, Value] = {}
    for int8 in int8_graph.nodes:
        policy, node = int8.operator.policy, nodes.get(int8.name)
        if not isinstance(policy, Accumulate) or node is None or node.operator.name != int8.operator.name:
            continue
        made = _real_constants(int8, policy)
        if made is None:
            continue
        positions = {name.rstrip("?*"): i for i, name in enumerate(node.operator.operands)}
        operands = [*node.inputs, *(None for _ in range(len(positions) - len(node.inputs)))]
        for name, data in made.items():
            operands[positions[name]] = constant(graph.unique_name(f"{node.name}.{name}.real"), data)
        value = Value(graph.unique_name(f"{node.output.name}.rounded"), node.output.type)
        twin = Node(graph.unique_name(f"{node.name}.rounded"), node.operator, operands, (value,))
        graph.insert_after(node, twin)
        results[node.output.name] = value
    # As outputs they are computed, though nobody reads them.
    graph.outputs = [*graph.outputs, *results.values()]
    return graph, results


def _real_constants(node: Node, policy: Accumulate) -> dict[str, Array] | None:
    """Weights and bias of an int8 node as reals, by name of the operand; None where they are float."""
    x, w, bias = (node.operand(name) for name in (policy.x, policy.w, policy.bias))
    if x is None or w is None or w.data is None or x.type.quantization is None:
        return None
    if w.type.quantization is None:
        return None
    scales = np.asarray(w.type.quantization.scales, np.float32)
    axis = output_axis(w.data)
    full = np.broadcast_to(scales, (w.data.shape[axis],))
    made = {policy.w: dequantize_weights(w.data, full, axis)}
    if bias is not None and bias.data is not None:
        unit = full.astype(np.float64) * x.type.quantization.scale
        made[policy.bias] = (bias.data.astype(np.float64) * unit).astype(np.float32)
    return made


def _activation_errors(value: Value, array: Array) -> Iterator[tuple[str, Array]]:
    """What rounding adds to a tensor, and what clipping adds to it where it does."""
    kind = value.type.quantization
    assert kind is not None
    clipped = _clipped(array, kind)
    yield ROUNDING, dequantize_by(quantize_by(clipped, kind), kind) - clipped
    if not np.array_equal(clipped, array):
        yield CLIPPING, clipped - array


def _clipped(array: Array, kind: Quantization) -> Array:
    low, high = kind.real_range
    return np.clip(array, np.float32(low), np.float32(high))


def _add(noise: dict[tuple[str, str], float], key: tuple[str, str], power: float) -> None:
    noise[key] = noise.get(key, 0.0) + power


def _power(arrays: Iterable[Array]) -> float:
    return float(sum(np.sum(np.square(array, dtype=np.float64)) for array in arrays))
