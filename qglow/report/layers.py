"""Sources of the error of an int8 program, node by node.

Three questions are kept apart. Does the node compute what onnxruntime computes from the same
integers (match)? What does quantizing this node alone cost (isolated)? What has gone wrong up to
and including this node in the program as it runs (accumulated)?
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from qglow.core.batch import batch_of
from qglow.core.errors import DataError
from qglow.core.types import Array, TensorType
from qglow.graph.graph import Graph, Node, Value, nested
from qglow.numerics.quantize import dequantize_by, quantize_by
from qglow.profiling.samples import Sample, batches
from qglow.quantization.report import is_int8
from qglow.quantization.scaled_later import is_scaled_later, scaled_result
from qglow.report.body_rounds import BodyRounds, Round
from qglow.report.layer_report import LayerError, LayerReport
from qglow.report.metrics import ErrorAccumulator, StepAccumulator
from qglow.report.tensors import FloatTensors, QdqTensors, counterpart, is_exact_when_fused
from qglow.toolchain.observation import Observed

Seen = Callable[[Value], Array | None]
"""What a running program holds for a value of the int8 graph, if it does."""


class Observable(Protocol):
    """A program compiled so that every activation can be read after a call: an `Executable`."""

    @property
    def inputs(self) -> Mapping[str, TensorType]:
        """Names and types of the inputs."""

    def __call__(self, inputs: Mapping[str, Array], /) -> Mapping[str, Array]:
        """Run once."""

    def activations(self) -> Mapping[str, Array]:
        """Activations of the last call, by value name."""


def compare_layers(
    float_graph: Graph,
    int8_graph: Graph,
    data: Iterable[Sample],
    *,
    observed: Observable | None = None,
    advance: Callable[[int], None] = lambda samples: None,
) -> LayerReport:
    """Compare every int8 node over whole batches of the data; a partial last batch is left out.

    Products with weights in blocks are compared too.

    `float_graph` is the graph that was quantized, with the same node names (after channels were
    equalized, if they were); both graphs have the same batch, and so has `observed`. Without it there
    are no accumulated errors. Memory is that of one batch. Raises DataError for less than a batch.

    Nodes of regions come last, by their names behind the path of the region, over the first rounds of each
    batch; there the interpreter, which has the bits of compiled code, takes the place of `observed`.
    """
    work = _Layers(float_graph, int8_graph, observed)
    inside = _Inside(float_graph, int8_graph, observed is not None)
    batch = batch_of({value.name: value.type.shape for value in int8_graph.inputs})
    count = 0
    for samples in batches(data, batch):
        if samples.fills(batch):
            work.add(samples.inputs)
            inside.add(samples.inputs)
            count += len(samples)
            advance(len(samples))
    if not count:
        raise DataError(f"there are fewer samples than one batch of {batch}")
    return LayerReport(count, (*work.result(), *inside.result()))


@dataclass
class _Counts:
    match: StepAccumulator = field(default_factory=StepAccumulator)
    float_match: ErrorAccumulator = field(default_factory=ErrorAccumulator)
    isolated: ErrorAccumulator = field(default_factory=ErrorAccumulator)
    accumulated: ErrorAccumulator = field(default_factory=ErrorAccumulator)
    rounding: ErrorAccumulator = field(default_factory=ErrorAccumulator)
    saturated: int = 0


class _Layers:
    def __init__(self, float_graph: Graph, int8_graph: Graph, observed: Observable | None) -> None:
        self._errors = _Errors(float_graph, int8_graph)
        self._float = FloatTensors(float_graph)
        self._observed = observed

    def add(self, inputs: Mapping[str, Array]) -> None:
        typed, seen = self._errors.typed(inputs), None
        if self._observed is not None:
            outputs = self._observed(typed)
            seen = Observed({**self._observed.activations(), **outputs}).logical
        self._errors.add(typed, self._float.run(inputs), seen)

    def result(self) -> tuple[LayerError, ...]:
        return self._errors.result()


class _Inside:
    """Errors of the nodes inside of regions, each region a graph of its own between float values."""

    def __init__(self, float_graph: Graph, int8_graph: Graph, accumulated: bool) -> None:
        real, int8 = dict(nested(float_graph)), dict(nested(int8_graph))
        paths = [path for path in int8 if path and any(map(_has_an_error_of_its_own, int8[path].nodes))]
        self._errors = {path: _Errors(real[path], int8[path], path) for path in paths if path in real}
        self._float = BodyRounds(float_graph) if self._errors else None
        self._int8 = BodyRounds(int8_graph) if self._errors and accumulated else None
        self._inputs = {value.name: value.type for value in int8_graph.inputs}

    def add(self, inputs: Mapping[str, Array]) -> None:
        if self._float is None:
            return
        reals, seen = self._float.run(inputs), dict[str, list[Round]]()
        if self._int8 is not None:
            seen = self._int8.run(_all_typed(inputs, self._inputs))
        for path, errors in self._errors.items():
            # Where int8 takes another branch or other rounds, they have no counterparts.
            known = seen.get(path, [])
            pairs = len(known) == len(reals[path])
            for number, values in enumerate(reals[path]):
                found = known[number] if pairs else None
                errors.add(errors.typed(values), values, None if found is None else _by_name(found))

    def result(self) -> Iterator[LayerError]:
        return itertools.chain.from_iterable(errors.result() for errors in self._errors.values())


def _by_name(found: Round) -> Seen:
    return lambda value: found.get(value.name)


class _Errors:
    """Errors of the int8 nodes of one graph against its float form; `path` precedes their names."""

    def __init__(self, float_graph: Graph, int8_graph: Graph, path: str = "") -> None:
        self._path = path
        self._nodes = [n for n in int8_graph.nodes if _has_an_error_of_its_own(n)]
        self._names = counterpart(float_graph, int8_graph)
        self._plain = QdqTensors(int8_graph, optimize=False)
        self._fused = QdqTensors(int8_graph, optimize=True)
        self._inputs = {value.name: value.type for value in int8_graph.inputs}
        self._counts = {node: _Counts() for node in self._nodes}

    def typed(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Inputs in the types that the int8 graph has for them."""
        return _all_typed(inputs, self._inputs)

    def add(self, typed: Mapping[str, Array], reals: Mapping[str, Array], seen: Seen | None) -> None:
        """Count a batch. reals: all values of the float graph. seen: those of the running program."""
        plain, fused = self._plain.run(typed), self._fused.run(typed)
        for node in self._nodes:
            counts = self._counts[node]
            self._match(node, fused if _is_exact(node) else plain, counts)
            self._isolate(node, reals, counts)
            if seen is not None:
                self._accumulate(node, reals, seen, counts)

    def result(self) -> tuple[LayerError, ...]:
        return tuple(self._layer(node, self._counts[node]) for node in self._nodes)

    def _layer(self, node: Node, counts: _Counts) -> LayerError:
        quantization = node.output.type.quantization
        rounding = saturated = None
        if quantization is not None and counts.rounding.elements:
            rounding = counts.rounding.summary().rmse / quantization.scale
            saturated = counts.saturated / counts.rounding.elements
        return LayerError(
            self._path + node.name,
            node.operator.name,
            node.output.type,
            counts.match.summary() if counts.match.elements else None,
            counts.float_match.summary().relative if counts.float_match.elements else None,
            _is_exact(node),
            counts.isolated.summary() if counts.isolated.elements else None,
            counts.accumulated.summary() if counts.accumulated.elements else None,
            rounding,
            saturated,
        )

    def _match(self, node: Node, tensors: Mapping[str, Array], counts: _Counts) -> None:
        """The node on the oracle's own inputs, against the oracle's own result."""
        expected = tensors.get(node.output.name)
        if expected is None:
            return
        operands: list[Array | None] = []
        for value in node.inputs:
            array = None if value is None else value.data if value.is_constant else tensors.get(value.name)
            if value is not None and array is None:
                return
            operands.append(array)
        found = node.operator.run(operands, node.input_types(), node.output_types())[0]
        if node.output.type.is_quantized:
            counts.match.add(found, expected)
        else:
            counts.float_match.add(found, expected)

    def _isolate(self, node: Node, reals: Mapping[str, Array], counts: _Counts) -> None:
        """The int8 node on the float model's values, against the float model's result."""
        result = _real(node)
        expected = reals.get(self._names.get(result.name, ""))
        if expected is None:
            return
        found = self._computed(result, reals)
        if found is None:
            return
        counts.isolated.add(_as_real(found, result.type), expected)
        if result.type.is_quantized:
            rounded = _as_real(_as_typed(expected, result.type), result.type)
            counts.rounding.add(rounded, expected)
            counts.saturated += _outside(expected, result.type)

    def _computed(self, value: Value, reals: Mapping[str, Array]) -> Array | None:
        """A value as its node computes it from the float model's values; None where these are not known.

        Operands that stand for no value of that model are computed too.
        """
        node = value.producer
        if node is None:
            return None
        operands: list[Array | None] = []
        for operand in node.inputs:
            array = None if operand is None else operand.data
            if operand is not None and array is None:
                array = reals.get(self._names.get(operand.name, ""))
                array = self._computed(operand, reals) if array is None else _as_typed(array, operand.type)
                if array is None:
                    return None
            operands.append(array)
        return node.operator.run(operands, node.input_types(), node.output_types())[value.index]

    def _accumulate(self, node: Node, reals: Mapping[str, Array], seen: Seen, counts: _Counts) -> None:
        result = _real(node)
        expected, found = reals.get(self._names.get(result.name, "")), seen(result)
        if expected is not None and found is not None:
            counts.accumulated.add(_as_real(found, result.type), expected)


def _real(node: Node) -> Value:
    """Result of a node, or the reals that its integers become later."""
    result = scaled_result(node) if is_scaled_later(node) else None
    return node.output if result is None else result


def _has_an_error_of_its_own(node: Node) -> bool:
    """Whether a node computes with integers, makes them, or has weights of few bits."""
    return is_int8(node) or node.operator.quantizes or node.operator.weight_blocks is not None


def _is_exact(node: Node) -> bool:
    """Whether the optimised run computes in int8 here; nodes with a float result it runs in float."""
    return is_exact_when_fused(node) and node.output.type.is_quantized


def _as_typed(array: Array, kind: TensorType) -> Array:
    """Reals in the type that the int8 graph has for them."""
    if kind.quantization is None:
        return np.asarray(array, kind.element.dtype)
    return quantize_by(array, kind.quantization)


def _all_typed(inputs: Mapping[str, Array], kinds: Mapping[str, TensorType]) -> dict[str, Array]:
    return {name: _as_typed(inputs[name], kind) for name, kind in kinds.items()}


def _outside(array: Array, kind: TensorType) -> int:
    """Elements that are more than half a step beyond the ends of an int8 type."""
    covered, quantization = kind.real_range(), kind.quantization
    assert covered is not None and quantization is not None
    half = quantization.scale / 2.0
    return int(np.count_nonzero((array < covered[0] - half) | (array > covered[1] + half)))


def _as_real(array: Array, kind: TensorType) -> Array:
    return array if kind.quantization is None else dequantize_by(array, kind.quantization)
