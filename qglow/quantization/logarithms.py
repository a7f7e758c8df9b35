"""Values whose logarithm or root is taken: spectra and likelihoods, whose small elements count.

Even steps of int8 over such a value make everything below one step equal, and the logarithm then tells
nothing of it; a root makes one step of 255 a sixteenth of the largest. Their nodes stay float, back to where
the values come from: sums of products, of which those of powers (never negative) stay float too.

Under a logarithm the products whose squares are taken stay float too where they transform a signal that
comes in, such as the Fourier transform of a spectrogram, with what prepares the signal: rounding is a noise
that all its bands have the same share of, and the weak ones, which the logarithm tells from one another,
would drown in it. Squares of what a network computes have no such bands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from qglow.graph.graph import Graph, Node, Value
from qglow.numerics.histogram import SIGN, bin_index
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.placement import FloatReasons, data_operands, handles_reals

STEPS = 255
SMALL = 0.1
"""Share of the elements below one step of int8 from which on they matter."""


def keep_logarithms_float(
    graph: Graph, statistics: Mapping[str, ValueProfile], reasons: FloatReasons
) -> None:
    """Add to `reasons` the nodes between logarithms and roots of wide values and the products before them."""
    for node in graph.nodes:
        if not node.operator.tells_ratios:
            continue
        chain = _chain(node, statistics)
        if node.operator.is_root and any(map(_gathers, chain)):
            continue  # a norm or a deviation, whose sum has no small elements to lose
        values = [value for part in chain for value in _computed(part)]
        wide = next((value for value in values if spans_widely(statistics.get(value.name))), None)
        if wide is None:
            continue
        function = f"the {node.operator.name} '{node.output.name}'"
        for part in chain:
            _keep(part, f"{function} is taken of it: {_why(wide)}", reasons)
        if not node.operator.is_root:
            for part in _transforms(chain):
                _keep(part, f"{function} is taken of its squares: rounding would drown weak bands", reasons)


def _transforms(chain: Sequence[Node]) -> Iterator[Node]:
    """The linear products of a signal that comes in whose squares a chain begins with, and what is before."""
    squares = [value for node in chain if _is_square(node) for value in _computed(node)]
    for product in _before(squares, lambda node: node.operator.sums_products):
        if product.operator.accumulate is None:
            continue
        above = _before(_computed(product), lambda node: False)
        is_plain = not any(map(_has_weights, above)) or all(map(_is_linear, above))
        if is_plain and _is_linear(product):
            yield from (product, *above)


def _before(values: Sequence[Value], ends: Callable[[Node], bool]) -> list[Node]:
    """The nodes that compute values, back to the inputs and to nodes, among them, that `ends` holds of."""
    found: dict[Node, None] = {}
    waiting = list(values)
    while waiting:
        producer = waiting.pop().producer
        if producer is None or producer in found:
            continue
        found[producer] = None
        waiting += [] if ends(producer) else _computed(producer)
    return list(found)


def _is_square(node: Node) -> bool:
    """Whether a result is the same for x and -x: a square, another even power, or a magnitude."""
    first = node.inputs[0] if node.inputs else None
    if not node.operator.elementwise or first is None or any(value is not first for value in node.inputs):
        return False
    with np.errstate(all="ignore"):  # functions need not be defined below 0
        [results] = node.operator.evaluate([np.array([-1.5, 1.5], np.float32)] * len(node.inputs))
    return bool(results[0] == results[1])


def _has_weights(node: Node) -> bool:
    return node.operator.sums_products or node.operator.recurs is not None


def _is_linear(node: Node) -> bool:
    """Whether a node has no bounds, applies no function, and multiplies with constants alone."""
    operator = node.operator
    if _has_weights(node) and operator.accumulate is None:
        return False
    return not operator.is_tabulated and not np.isfinite(operator.bounds).any()


def _gathers(node: Node) -> bool:
    """Whether a node makes fewer elements than it reads, as sums and means along axes do."""
    if node.operator.kept_operand is not None:
        return False
    return any(value.type.size > node.output.type.size for value in _computed(node))


def _why(value: Value) -> str:
    return f"int8 would make the small values of '{value.name}' equal"


def spans_widely(profile: ValueProfile | None) -> bool:
    """Whether many elements are below one step of int8 over the range of all; False without a histogram."""
    if profile is None or not profile.total:
        return False
    step = max(-profile.low, profile.high) / STEPS
    if not 0.0 < step < np.inf:
        return False
    first = int(bin_index(np.array(step, np.float32)))
    small = int(profile.counts[:first].sum() + profile.counts[SIGN : SIGN + first].sum())
    return small >= SMALL * profile.total


def _chain(node: Node, statistics: Mapping[str, ValueProfile]) -> list[Node]:
    """Return a node and the nodes before it, back to products; those of powers are among them."""
    chain, waiting, seen = [node], _computed(node), {node}
    while waiting:
        producer = waiting.pop().producer
        if producer is None or producer in seen or not handles_reals(producer):
            continue
        seen.add(producer)
        sources = _computed(producer)
        if not producer.operator.is_light:
            sources = [value for value in sources if _is_power(statistics.get(value.name))]
            if not sources:
                continue
        chain.append(producer)
        waiting += sources
    return chain


def _is_power(profile: ValueProfile | None) -> bool:
    return profile is not None and profile.low >= 0.0 and spans_widely(profile)


def _keep(node: Node, reason: str, reasons: FloatReasons) -> None:
    if handles_reals(node):
        reasons.setdefault(node, reason)


def _computed(node: Node) -> list[Value]:
    """Return the computed operands that would be int8."""
    operands = (node.inputs[index] for index in data_operands(node) if index < len(node.inputs))
    return [value for value in operands if value is not None and value.data is None]
