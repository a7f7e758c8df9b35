"""Rounding of the weights of an int8 graph anew, by the inputs that its nodes have on calibration data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qglow.core.errors import InputFileError
from qglow.core.interruption import Interruption
from qglow.core.passes import PassLog
from qglow.core.types import Array, Quantization
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.operator import Accumulate
from qglow.graph.rewriting import operand
from qglow.graph.verifier import verify_graph
from qglow.numerics.quantize import dequantize_by
from qglow.numerics.requantize import accumulator_margin
from qglow.numerics.weights import quantize_bias
from qglow.numerics.wide import worst_sum
from qglow.quantization.choices import Choices
from qglow.quantization.dynamic import (
    adds_bias,
    multiplies_scaled_rows,
    real_rows,
    rows_margin,
    scales_of_columns,
)
from qglow.quantization.pipeline import QuantizedGraph
from qglow.quantization.reconstruction.feedback import expected_error, nearest, rounded_with_feedback
from qglow.quantization.reconstruction.learned import rounded_by_learning
from qglow.quantization.reconstruction.moments import (
    WindowMoments,
    grouped,
    moments_bytes,
    shrunk,
    ungrouped,
    window_length,
)
from qglow.quantization.reconstruction.state import Rounded, RoundingState
from qglow.quantization.report import QuantizedNode
from qglow.quantization.weights import FloatWeights

Tensors = Callable[[Graph, Sequence[Value]], Iterable[Mapping[Value, Array]]]
"""Function that runs an int8 graph over the calibration data and gives the values of each run.

int8 values are given as int8, in NCHW.
"""

PASS = "round-weights"
LONGEST_WINDOW = 8192
"""Inputs of a sum, K, beyond which the covariance, K by K, is not worth its time and memory."""
WINDOWS_AN_INPUT = 4
"""Windows that are counted, as a multiple of their length, so that the covariance has full rank."""
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
    out_of_time: Callable[[], bool] = lambda: False,
    state: RoundingState | None = None,
    interruption: Interruption | None = None,
) -> QuantizedGraph:
    """Round the weights of an int8 graph with error feedback and, if `learn`, by gradients after that.

    Returns a new graph with the same scales and ranges. An output channel changes only if its expected
    squared error falls. Where biases are corrected, they are corrected anew for the mean error of the new
    weights, with the means of the int8 inputs. samples: how many `tensors` runs over. advance: is
    called with the number of nodes done. The result depends on the order of samples, not on their batches.

    Once `out_of_time` returns true, and after an interruption, no further node is begun: the remaining nodes
    keep their integers, with a reason in the log and a warning in the report. state: results of earlier
    calls, which are not computed again; new results are added to it, even if an error or the user ends the
    call.

    Raises InputFileError if `state` does not fit the nodes.
    """
    log = log or PassLog()
    log.pass_name = PASS
    graph = quantized.graph.copy()
    names = {node.name: node for node in quantized.source.nodes}
    work = list(_candidates(graph, names, log, advance))
    state, interruption = state or RoundingState(), interruption or Interruption()
    _check_fits(state, work)
    recipe = quantized.recipe
    left_out = frozenset(Choices.of(quantized.source, recipe).left_out("correct_bias"))
    rounder = _Rounder(graph, names, tensors, samples, recipe.correct_bias, left_out)
    try:
        with interruption.during("rounding weights"):
            rounder.run(work, learn, state, out_of_time, advance)
    finally:
        state.save()
    # Weights are installed only now, so that the inputs that a node sees do not depend on the turns.
    done = [(node, state.results[node.name]) for node in work if node.name in state.results]
    margins = dict(_install(graph, node, result, log) for node, result in done)
    verify_graph(graph, "after rounding the weights anew")
    nodes = tuple(_with_margin(node, margins) for node in quantized.report.quantized)
    report = quantized.report
    warnings = (*report.warnings, *_tell_of_late(work, learn, state, log, interruption.happened))
    entries = (*report.log, *log.entries)
    report = replace(report, quantized=nodes, log=entries, warnings=warnings)
    return replace(quantized, graph=graph, report=report)


@dataclass(frozen=True)
class _Rounder:
    graph: Graph
    sources: Mapping[str, Node]
    tensors: Tensors
    samples: int
    correct_bias: bool
    left_out: frozenset[str]
    """Names of nodes whose biases are not corrected even so."""

    def run(
        self,
        work: Sequence[Node],
        learn: bool,
        state: RoundingState,
        out_of_time: Callable[[], bool],
        advance: Callable[[int], None],
    ) -> None:
        """Put results for the nodes into the state, until time is up."""
        open_nodes = [node for node in work if not _is_done(node, learn, state)]
        advance(len(work) - len(open_nodes))
        for turn in _turns(open_nodes):
            if out_of_time():
                return
            moments = self._counted(turn, out_of_time)
            # Feedback is fast and does most: all nodes get it before one learns.
            for stage in (False, True) if learn else (False,):
                for node, counted in moments.items():
                    if out_of_time():
                        return
                    if not _is_done(node, stage, state):
                        state.add(node.name, self._round(node, counted, stage, state))
                    advance(int(stage == learn))

    def _counted(self, turn: Sequence[Node], out_of_time: Callable[[], bool]) -> dict[Node, WindowMoments]:
        """Moments of the windows that the nodes read, over all samples; empty if time runs out."""
        moments = {node: WindowMoments(node, _windows(node, self.samples)) for node in turn}
        inputs = list(dict.fromkeys(_read(node) for node in turn))
        for found in self.tensors(self.graph, inputs):
            if out_of_time():
                return {}
            reals = {value: _real(value, array) for value, array in found.items()}
            for node, counted in moments.items():
                counted.add(reals[_read(node)])
        return moments

    def _round(self, node: Node, moments: WindowMoments, learn: bool, state: RoundingState) -> Rounded:
        source = FloatWeights.of(self.sources[node.name])
        before = state.results[node.name].weights if learn else None
        correct_bias = self.correct_bias and node.name not in self.left_out
        return _round(node, source, moments, correct_bias, before)


def _is_done(node: Node, learn: bool, state: RoundingState) -> bool:
    result = state.results.get(node.name)
    return result is not None and (result.learned or not learn)


def _check_fits(state: RoundingState, work: Sequence[Node]) -> None:
    """Raise InputFileError for a state whose weights are not those of the nodes."""
    for node in work:
        result, old = state.results.get(node.name), _weights(node)
        if result is not None and (
            result.weights.shape != old.shape or result.bias.shape != old.shape[result.axis :][:1]
        ):
            raise InputFileError(f"{state.path} holds other weights for node '{node.name}': remove it")


def _tell_of_late(
    work: Sequence[Node], learn: bool, state: RoundingState, log: PassLog, interrupted: bool
) -> list[str]:
    """Log every node that was not finished in time; return a warning that lists them, if there are any."""
    late = [node.name for node in work if not _is_done(node, learn, state)]
    if not late:
        return []
    for name in late:
        kept = "its feedback of errors, unlearned" if name in state.results else "the nearest integers"
        why = "interrupted" if interrupted else "time was up (rounding_budget)"
        log.refused(name, f"{why}; its weights keep {kept}")
    first = [name for name in late if name not in state.results]
    kept = f", {len(first)} of them at the nearest integers" if learn and first else ""
    nodes = f"{len(late)} of {len(work)} nodes{kept}: {', '.join(late)}"
    if interrupted:
        return [f"rounding was interrupted before {nodes}"]
    return [f"time for rounding was up before {nodes}; allow more with a larger rounding_budget"]


def rounded_nodes(graph: Graph) -> list[Node]:
    """Return the nodes that `round_weights` considers: those with weights and an integer input."""
    return [
        node
        for node in graph.nodes
        if node.operator.accumulate is not None and _input(node).type.is_quantized and _has_scales(node)
    ]


def _has_scales(node: Node) -> bool:
    """Whether scales of a product that measures its rows, and their reals, are found."""
    if not multiplies_scaled_rows(node):
        return True
    return scales_of_columns(node) is not None and real_rows(node) is not None


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
    """Yield the nodes in their order, as many at a time as have covariances of at most `MEMORY` bytes."""
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


def _round(
    node: Node, source: FloatWeights, moments: WindowMoments, correct_bias: bool, learn_from: Array | None
) -> Rounded:
    """Round a node's weights by error feedback and, if there are integers to learn from, by gradients.

    Each output channel takes the candidate with the least expected error.
    """
    old = _weights(node)
    weights = grouped(node, source.weights).astype(np.float64)
    scales = _channel_scales(node, weights)
    covariance = shrunk(moments.covariance(centred=correct_bias), moments.count)
    before = grouped(node, old).astype(np.float64)
    if learn_from is None:
        tried = [before, rounded_with_feedback(weights, scales, covariance)]
    else:
        start = grouped(node, learn_from).astype(np.float64)
        tried = [before, start, rounded_by_learning(weights, scales, covariance, start)]
    errors = np.stack([expected_error(weights, found, scales, covariance) for found in tried])
    best = np.argmin(errors, axis=0)
    chosen = np.take_along_axis(np.stack(tried), best[None, ..., None], axis=0)[0]
    bias = source.bias.astype(np.float64)
    if correct_bias:
        left = weights - chosen * scales[..., None]
        bias = bias + np.sum(left * moments.means[:, None, :], axis=2).reshape(-1)
    changed = int(np.count_nonzero(chosen != nearest(weights, scales)))
    unlearned = "; too large to learn" if learn_from is not None and tried[2] is tried[1] else ""
    return Rounded(
        ungrouped(node, chosen, old).astype(np.int8),
        _stored_bias(node, bias, scales),
        source.axis,
        f"{changed} of {chosen.size} weights not to the nearest integer: the squared error that rounding "
        f"adds falls by {_decibels(errors[0], np.min(errors, axis=0)):.1f} dB ({moments.count} windows)"
        f"{unlearned}",
        learned=learn_from is not None,
    )


def _decibels(before: Array, after: Array) -> float:
    totals = float(np.sum(before)), float(np.sum(after))
    return 10 * math.log10(totals[0] / totals[1]) if min(totals) > 0.0 else 0.0


def _install(graph: Graph, node: Node, result: Rounded, log: PassLog) -> tuple[str, float | None]:
    """Give a node its rounded constants; return its name and its int32 margin, None if it is unchanged."""
    policy = node.operator.policy
    assert isinstance(policy, Accumulate)
    rows = multiplies_scaled_rows(node)
    x = _quantization(_input(node))
    sums = worst_sum(result.weights, result.bias, x, result.axis) if not rows else None
    margin = rows_margin(result.weights) if sums is None else accumulator_margin(sums)
    if margin < 1.0:
        log.refused(node.name, "with other weights its sums could overflow int32")
        return node.name, None
    adding = adds_bias(node) if rows else node
    data = {node.operand(policy.w): result.weights}
    if adding is not None:
        data[operand(adding, 1) if rows else node.operand(policy.bias)] = result.bias
    for each in dict.fromkeys((node, adding)):
        if each is not None:
            each.inputs = tuple(
                _replaced(graph, each, value, data[value]) if value in data and value is not None else value
                for value in each.inputs
            )
    log.applied(node.name, result.description, exact=False)
    return node.name, margin


def _replaced(graph: Graph, node: Node, old: Value, data: Array) -> Value:
    name = old.name if old.users() == [node] else graph.unique_name(old.name)
    return constant(name, data, old.type.quantization)


def _channel_scales(node: Node, weights: Array) -> Array:
    """float64[G, O] of weights [G, O, K]."""
    rows = scales_of_columns(node) if multiplies_scaled_rows(node) else None
    scales = _weight_quantization(node).scales if rows is None else rows
    flat = np.asarray(scales, np.float64).reshape(-1)
    return np.broadcast_to(flat, (weights.shape[0] * weights.shape[1],)).reshape(weights.shape[:2])


def _stored_bias(node: Node, bias: Array, scales: Array) -> Array:
    """The bias as a graph holds it: integers of the sums, or reals that are added to scaled sums of rows."""
    if multiplies_scaled_rows(node):
        return bias.astype(np.float32)
    return quantize_bias(bias, _quantization(_input(node)).scale, scales.reshape(-1).astype(np.float32))


def _read(node: Node) -> Value:
    """The value that a node multiplies: integers, or the reals whose rows it scales."""
    rows = real_rows(node) if multiplies_scaled_rows(node) else None
    return _input(node) if rows is None else rows


def _real(value: Value, array: Array) -> Array:
    return array if value.type.is_float else dequantize_by(array, _quantization(value))


def _input(node: Node) -> Value:
    policy = node.operator.policy
    assert isinstance(policy, Accumulate)
    value = node.operand(policy.x)
    assert value is not None
    return value


def _weights(node: Node) -> Array:
    """The int8 weights that a node has now."""
    policy = node.operator.policy
    assert isinstance(policy, Accumulate)
    value = node.operand(policy.w)
    assert value is not None and value.data is not None
    return value.data


def _weight_quantization(node: Node) -> Quantization:
    policy = node.operator.policy
    assert isinstance(policy, Accumulate)
    value = node.operand(policy.w)
    assert value is not None
    return _quantization(value)


def _quantization(value: Value) -> Quantization:
    assert value.type.quantization is not None
    return value.type.quantization


def _with_margin(node: QuantizedNode, margins: Mapping[str, float | None]) -> QuantizedNode:
    margin = margins.get(node.name)
    return node if margin is None else replace(node, margin=margin)
