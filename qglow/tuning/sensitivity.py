"""Contribution of each place in a network to the error at its outputs.

Quantization adds errors of three kinds: activations are rounded, activations are clipped to their range,
weights are rounded. Rows that a product measures are rounded for that product alone. Each error is small, so
that their effects nearly add up. So each one is put into the float network alone, as it is on real samples,
and its effect at the outputs is measured. That takes a run of the float network for every place and sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qglow.core.jobs import HereJobs, Jobs, spread
from qglow.core.types import Array, Quantization
from qglow.graph.graph import Graph, Node, Value, nested
from qglow.graph.operator import Accumulate
from qglow.numerics.quantize import dequantize_by, quantize_by
from qglow.numerics.weights import dequantize_weights
from qglow.quantization.dynamic import added_bias, multiplies_scaled_rows, scaled_columns
from qglow.quantization.tied_tables import looks_up_integers, real_table
from qglow.quantization.weights import output_axis
from qglow.report.tensors import counterpart
from qglow.toolchain import CompileOptions
from qglow.toolchain.observation import Observation
from qglow.toolchain.spread import code_of_jobs
from qglow.tuning.injection import Injection
from qglow.tuning.inside import (
    ClippingChange,
    ConstantsChange,
    InsideError,
    InsideErrors,
    RoundingChange,
    RowsChange,
    with_constants,
)

ROUNDING, CLIPPING, WEIGHTS = "rounding", "clipping", "weights"


@dataclass(frozen=True, slots=True)
class NoiseSource:
    """A place where quantization adds an error.

    value: name of the value of the int8 graph that is rounded or clipped; for weights, and for rows that a
    product measures, of the result of their node; in a region behind its path. kind: ROUNDING, CLIPPING or
    WEIGHTS. noise: power of the error at the outputs that this place alone causes, relative to the power of
    the outputs.
    """

    value: str
    kind: str
    noise: float


@dataclass(frozen=True)
class Sensitivity:
    """Sources of noise at all places, measured over `samples` samples."""

    samples: int
    sources: tuple[NoiseSource, ...]

    @property
    def noise(self) -> float:
        """Sum of the noise of all sources: the prediction for all together."""
        return sum(source.noise for source in self.sources)

    @property
    def sqnr_db(self) -> float:
        """The predicted SQNR of the outputs, in dB."""
        return decibels(self.noise)

    def of(self, value: str, *kinds: str) -> float:
        """Return the noise of one value, of these kinds, or of all kinds if none is given."""
        return sum(s.noise for s in self.sources if s.value == value and (not kinds or s.kind in kinds))


def decibels(noise: float) -> float:
    """Return the SQNR in dB for noise relative to the power of the signal; infinite without noise."""
    return math.inf if noise <= 0.0 else -10.0 * math.log10(noise)


def sensitivity(
    float_graph: Graph,
    int8_graph: Graph,
    runs: Sequence[Mapping[str, Array]],
    options: CompileOptions | None = None,
    advance: Callable[[int], None] = lambda runs: None,
    jobs: Jobs | None = None,
) -> Sensitivity:
    """Measure where the error of an int8 graph comes from, on inputs of the float graph it stands for.

    `advance` is called with 1 after each run. jobs: where the network runs (default: here). Memory use is a
    few times that of all activations.
    """
    work = _Measuring(float_graph, int8_graph, options if jobs is None else code_of_jobs(jobs, options))
    noise: dict[_Place, float] = {}
    signal = 0.0
    for power, found in spread(jobs or HereJobs(), work, runs):
        signal += power
        for key, distance in found:
            noise[key] = noise.get(key, 0.0) + distance
        advance(1)
    return Sensitivity(
        len(runs), tuple(NoiseSource(*key, power / signal if signal else 0.0) for key, power in noise.items())
    )


_Place = tuple[str, str]
"""Name of a value, and kind of an error."""


@dataclass(frozen=True)
class _Measuring:
    """Effects of the errors of an int8 graph, each alone, on the outputs of its float graph.

    A job takes inputs; it returns the power of the outputs, and the square by which each error moves them.
    """

    real: Graph
    int8: Graph
    options: CompileOptions | None

    def begin(self) -> Callable[[Mapping[str, Array]], tuple[float, list[tuple[_Place, float]]]]:
        """Compile the float graph, and the one with integer weights."""
        names = counterpart(self.real, self.int8)
        real = {value.name: value for value in self.real.values() if not value.is_constant}
        places = {v: real[names[v.name]] for v in int8_values(self.int8) if names.get(v.name) in real}
        rounded, results = _with_rounded_operands(self.real, self.int8)
        twins, moved = {v.name: v for v in rounded.values()}, dict.fromkeys(name for name, *_ in results)
        watched = list(dict.fromkeys([*(twins[v.name] for v in places.values()), *results.values()]))
        watched += [twins[name] for name in moved if twins[name] not in watched]
        injection = Injection(self.real, [*places.values(), *(real[name] for name in moved)], self.options)
        observation = Observation(rounded, watched, self.options)
        inside = list(_errors_inside(self.real, self.int8))
        errors = InsideErrors(self.real, [error for _, error in inside], self.options)

        def measure(inputs: Mapping[str, Array]) -> tuple[float, list[tuple[_Place, float]]]:
            reals = {value.name: array for value, array in observation(inputs).items()}
            run = injection.run(inputs)
            found = [
                ((value.name, kind), run.distance(twin.name, error))
                for value, twin in places.items()
                for kind, error in _activation_errors(value, reals[twin.name])
            ]
            found += [
                ((value, kind), run.distance(name, reals[result.name] - reals[name]))
                for (name, value, kind), result in results.items()
            ]
            found += zip((place for place, _ in inside), errors.distances(inputs)[1], strict=True)
            return run.power, found

        return measure


def int8_values(graph: Graph) -> Iterator[Value]:
    """Yield the values of an int8 graph where tensors are rounded to integers, not only moved as integers."""
    for node in graph.nodes:
        moves = node.operator.passes_integers_on
        kinds = {operand.type.quantization for operand in node.inputs if operand is not None}
        for value in node.outputs:
            if value.type.is_quantized and not (moves and kinds == {value.type.quantization}):
                yield value


def _errors_inside(float_graph: Graph, int8_graph: Graph) -> Iterator[tuple[_Place, InsideError]]:
    """Yield the errors in the regions of an int8 graph, and their places: names stand behind their path."""
    real = dict(nested(float_graph))
    for path, region in nested(int8_graph):
        if not path or path not in real:
            continue
        names, known = counterpart(real[path], region), {v.name for v in real[path].values()}
        twins = _twins(real[path], region)
        for value in int8_values(region):
            kind, name = value.type.quantization, names.get(value.name, "")
            if kind is None or name not in known:
                continue
            yield (path + value.name, ROUNDING), InsideError(path, name, RoundingChange(kind))
            yield (path + value.name, CLIPPING), InsideError(path, name, ClippingChange(kind))
        for node, int8, constants in twins:
            error = InsideError(path, node.output.name, ConstantsChange(constants))
            yield (path + int8.output.name, WEIGHTS), error
            if multiplies_scaled_rows(int8):
                error = InsideError(path, node.output.name, RowsChange())
                yield (path + int8.output.name, ROUNDING), error


def _twins(float_graph: Graph, int8_graph: Graph) -> Iterator[tuple[Node, Node, dict[int, Array]]]:
    """Yield float nodes that have int8 weights, their int8 forms, and the reals of these by their places."""
    nodes = {node.name: node for node in float_graph.nodes}
    for int8 in int8_graph.nodes:
        policy, node = int8.operator.policy, nodes.get(int8.name)
        if node is None or node.operator.name != int8.operator.name:
            continue
        table = real_table(int8, node) if looks_up_integers(int8) else None
        if table is not None:
            yield node, int8, {0: table}
        made = real_constants(int8, policy) if isinstance(policy, Accumulate) else None
        if made is not None:
            yield node, int8, {node.operator.place_of(name): data for name, data in made.items()}


def _with_rounded_operands(
    float_graph: Graph, int8_graph: Graph
) -> tuple[Graph, dict[tuple[str, str, str], Value]]:
    """Return the float graph with twins of every node that has int8 weights, and the results of the twins.

    One twin reads the same activations, and has the dequantized weights and bias; if the node measures its
    rows, another has its own weights, and reads rounded rows. Results are by the name of the result of the
    original node and the place of the error.
    """
    graph = float_graph.copy()
    results: dict[tuple[str, str, str], Value] = {}
    for node, int8, made in list(_twins(graph, int8_graph)):
        name, place = node.output.name, int8.output.name
        results[name, place, WEIGHTS] = with_constants(graph, node, made).output
        if multiplies_scaled_rows(int8):
            results[name, place, ROUNDING] = RowsChange()(graph, node.output)
    # The results become outputs, because without a use they would not be computed.
    graph.outputs = [*graph.outputs, *results.values()]
    return graph, results


def real_constants(node: Node, policy: Accumulate) -> dict[str, Array] | None:
    """Return dequantized weights and bias of an int8 node, by name of the operand.

    None if they are float.
    """
    if multiplies_scaled_rows(node):
        weights, bias_of_rows = scaled_columns(node), added_bias(node)
        if weights is None:
            return None
        return {policy.w: weights} | ({} if bias_of_rows is None else {policy.bias: bias_of_rows})
    x, w, bias = (node.operand(name) for name in (policy.x, policy.w, policy.bias))
    if x is None or w is None or w.data is None or x.type.quantization is None:
        return None
    if w.type.quantization is None:
        return None
    scales = np.asarray(w.type.quantization.scales, np.float32)
    axis = output_axis(node)
    full = np.broadcast_to(scales, (w.data.shape[axis],))
    made = {policy.w: dequantize_weights(w.data, full, axis)}
    if bias is not None and bias.data is not None:
        unit = full.astype(np.float64) * x.type.quantization.scale
        made[policy.bias] = (bias.data.astype(np.float64) * unit).astype(np.float32)
    return made


def _activation_errors(value: Value, array: Array) -> Iterator[tuple[str, Array]]:
    """Yield the error of rounding a tensor, and that of clipping it if it clips anything."""
    kind = value.type.quantization
    assert kind is not None
    clipped = _clipped(array, kind)
    yield ROUNDING, dequantize_by(quantize_by(clipped, kind), kind) - clipped
    if not np.array_equal(clipped, array):
        yield CLIPPING, clipped - array


def _clipped(array: Array, kind: Quantization) -> Array:
    low, high = kind.real_range
    return np.clip(array, np.float32(low), np.float32(high))
