"""New integers for the weights of an int8 graph, from the inputs that its nodes have on data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qglow.core.passes import PassLog
from qglow.core.types import Array, Quantization
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.operator import Accumulate
from qglow.graph.verifier import verify_graph
from qglow.numerics.quantize import dequantize_by
from qglow.numerics.requantize import accumulator_margin, worst_accumulator
from qglow.numerics.weights import quantize_bias
from qglow.quantization.pipeline import QuantizedGraph
from qglow.quantization.reconstruction.feedback import expected_error, nearest, rounded_with_feedback
from qglow.quantization.reconstruction.learned import rounded_by_learning
from qglow.quantization.reconstruction.moments import (
    WindowMoments,
    grouped,
    moments_bytes,
    ungrouped,
    window_length,
)
from qglow.quantization.report import QuantizedNode
from qglow.quantization.weights import FloatWeights

Tensors = Callable[[Graph, Sequence[Value]], Iterable[Mapping[Value, Array]]]
"""Runs an int8 graph over the calibration data: for each run these values, int8 as int8, in NCHW."""

PASS = "round-weights"
LONGEST_WINDOW = 8192
"""Inputs of a sum, beyond which the covariance, the square of it, is not worth its time and memory."""
WINDOWS_AN_INPUT = 4
"""Windows that are counted, as a multiple of their length: the covariance has to have full rank."""
FEWEST_WINDOWS = 8192
MEMORY = 512 * 2**20
"""Bytes of covariances at one time: the nodes take turns, each with a run over the data."""


def round_weights(
    quantized: QuantizedGraph,
    tensors: Tensors,
    samples: int,
    log: PassLog | None = None,
    advance: Callable[[int], None] = lambda nodes: None,
    learn: bool = False,
) -> QuantizedGraph:
    """The same int8 graph with the weights of its sums rounded with error feedback, or learned after that.

    Scales and ranges stay as they are. Only output channels change whose expected squared error
    becomes less; where biases are corrected, the mean error of all weights is taken out of the bias
    anew, now with the means that the int8 inputs have. `samples` is how many `tensors` runs over;
    `advance` is called with the number of nodes done. The order of samples matters, their batches do not.
    """
    log = log or PassLog()
    log.pass_name = PASS
    graph = quantized.graph.copy()
    names = {node.name: node for node in quantized.source.nodes}
    work = list(_candidates(graph, names, log, advance))
    rounded: list[_Rounded] = []
    for turn in _turns(work):
        moments = {node: WindowMoments(node, _windows(node, samples)) for node in turn}
        inputs = list(dict.fromkeys(_input(node) for node in turn))
        for found in tensors(graph, inputs):
            reals = {value: dequantize_by(array, _quantization(value)) for value, array in found.items()}
            for node, counted in moments.items():
                counted.add(reals[_input(node)])
        for node, counted in moments.items():
            source = FloatWeights.of(names[node.name])
            rounded.append(_round(node, source, counted, quantized.report.options.correct_bias, learn))
            advance(1)
    # Only now, so that what a node sees does not depend on the turns.
    margins = dict(_install(graph, result, log) for result in rounded)
    verify_graph(graph, "after rounding the weights anew")
    nodes = tuple(_with_margin(node, margins) for node in quantized.report.quantized)
    entries = (*quantized.report.log, *log.entries)
    return replace(quantized, graph=graph, report=replace(quantized.report, quantized=nodes, log=entries))


def rounded_nodes(graph: Graph) -> list[Node]:
    """The nodes whose weights `round_weights` looks at."""
    return [
        node
        for node in graph.nodes
        if isinstance(node.operator.policy, Accumulate) and _input(node).type.is_quantized
    ]


def _candidates(
    graph: Graph, sources: Mapping[str, Node], log: PassLog, advance: Callable[[int], None]
) -> Iterator[Node]:
    for node in rounded_nodes(graph):
        source = sources.get(node.name)
        if source is None or source.operator.name != node.operator.name:
            log.refused(node.name, "it has no float node whose weights it stands for")
        elif window_length(node) > LONGEST_WINDOW:
            log.refused(node.name, f"each result is a sum over more than {LONGEST_WINDOW} inputs")
        else:
            yield node
            continue
        advance(1)


def _turns(nodes: Sequence[Node]) -> Iterator[list[Node]]:
    """The nodes in their order, as many at a time as the memory for their covariances allows."""
    turn: list[Node] = []
    used = 0
    for node in nodes:
        size = moments_bytes(node)
        if turn and used + size > MEMORY:
            yield turn
            turn, used = [], 0
        turn.append(node)
        used += size
    if turn:
        yield turn


def _windows(node: Node, samples: int) -> int:
    wanted = max(WINDOWS_AN_INPUT * window_length(node), FEWEST_WINDOWS)
    return max(1, math.ceil(wanted / max(samples, 1)))


@dataclass(frozen=True)
class _Rounded:
    """What a node is to get: int8 weights and int32 bias. `axis` is that of output channels."""

    node: Node
    weights: Array
    bias: Array
    axis: int
    description: str


def _round(
    node: Node, source: FloatWeights, moments: WindowMoments, correct_bias: bool, learn: bool
) -> _Rounded:
    policy = node.operator.policy
    assert isinstance(policy, Accumulate)
    old = node.operand(policy.w)
    assert old is not None and old.data is not None and old.type.quantization is not None
    weights = grouped(node, source.weights).astype(np.float64)
    scales = _channel_scales(old.type.quantization, weights)
    covariance = moments.covariance(centred=correct_bias)
    before = grouped(node, old.data).astype(np.float64)
    tried = [before, rounded_with_feedback(weights, scales, covariance)]
    if learn:
        tried.append(rounded_by_learning(weights, scales, covariance, tried[1]))
    errors = np.stack([expected_error(weights, found, scales, covariance) for found in tried])
    best = np.argmin(errors, axis=0)
    chosen = np.take_along_axis(np.stack(tried), best[None, ..., None], axis=0)[0]
    bias = source.bias.astype(np.float64)
    if correct_bias:
        left = weights - chosen * scales[..., None]
        bias = bias + np.sum(left * moments.means[:, None, :], axis=2).reshape(-1)
    scale_x = _quantization(_input(node)).scale
    changed = int(np.count_nonzero(chosen != nearest(weights, scales)))
    return _Rounded(
        node,
        ungrouped(node, chosen, old.data).astype(np.int8),
        quantize_bias(bias, scale_x, scales.reshape(-1).astype(np.float32)),
        source.axis,
        f"{changed} of {chosen.size} weights not to the nearest integer: the squared error that rounding "
        f"adds falls by {_decibels(errors[0], np.min(errors, axis=0)):.1f} dB ({moments.count} windows)",
    )


def _decibels(before: Array, after: Array) -> float:
    totals = float(np.sum(before)), float(np.sum(after))
    return 10 * math.log10(totals[0] / totals[1]) if min(totals) > 0.0 else 0.0


def _install(graph: Graph, result: _Rounded, log: PassLog) -> tuple[str, float | None]:
    """Give the node its constants; its name, and how often its largest sum fits int32 (None: unchanged)."""
    node = result.node
    policy = node.operator.policy
    assert isinstance(policy, Accumulate)
    x = _quantization(_input(node))
    margin = accumulator_margin(
        worst_accumulator(result.weights, result.bias, x.zero_point, axis=result.axis)
    )
    if margin < 1.0:
        log.refused(node.name, "with other weights its sums could overflow int32")
        return node.name, None
    data = {node.operand(policy.w): result.weights, node.operand(policy.bias): result.bias}
    node.inputs = tuple(
        _replaced(graph, node, value, data[value]) if value in data and value is not None else value
        for value in node.inputs
    )
    log.applied(node.name, result.description, exact=False)
    return node.name, margin


def _replaced(graph: Graph, node: Node, old: Value, data: Array) -> Value:
    name = old.name if old.users() == [node] else graph.unique_name(old.name)
    return constant(name, data, old.type.quantization)


def _channel_scales(quantization: Quantization, weights: Array) -> Array:
    """float64[G, O] of weights [G, O, K]."""
    scales = np.asarray(quantization.scales, np.float64).reshape(-1)
    return np.broadcast_to(scales, (weights.shape[0] * weights.shape[1],)).reshape(weights.shape[:2])


def _input(node: Node) -> Value:
    policy = node.operator.policy
    assert isinstance(policy, Accumulate)
    value = node.operand(policy.x)
    assert value is not None
    return value


def _quantization(value: Value) -> Quantization:
    assert value.type.quantization is not None
    return value.type.quantization


def _with_margin(node: QuantizedNode, margins: Mapping[str, float | None]) -> QuantizedNode:
    margin = margins.get(node.name)
    return node if margin is None else replace(node, margin=margin)
