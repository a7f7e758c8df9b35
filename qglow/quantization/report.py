"""What quantization did, as data: which nodes are int8, which stay float and why, and what it cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from qglow.core.passes import LogEntry, PassLog
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.functions import RoundTo
from qglow.graph.ops.quantize import Dequantize, Quantize, Rescale
from qglow.quantization.islands import CONVERSION, connected, gain
from qglow.quantization.options import QuantizationOptions
from qglow.quantization.placement import handles_reals
from qglow.quantization.tensors import TensorRange

PASSED_ON = "it only passes on a result that the int8 work before it gives in float"
"""Why a node is float that nothing keeps float: folding let an int8 node give a float result."""

FOLDING = ("cancel-conversions", "merge-rescales", "fold-rescale-up", "fold-rescale-down")


@dataclass(frozen=True, slots=True)
class QuantizedNode:
    """A node that runs in int8. `margin` is how often its largest sum fits int32; None without sums."""

    name: str
    operator: str
    result: str
    margin: float | None


@dataclass(frozen=True, slots=True)
class FloatNode:
    """A node that stays float, and why. `dtype` is what its weights and results are rounded to."""

    name: str
    operator: str
    reason: str
    dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class Border:
    """A value that passes between float and int8. `direction` is "in" or "out" of int8.

    cost: bytes that its conversion touches; 0 where sums give float themselves.
    """

    value: str
    direction: str
    elements: int
    reason: str
    cost: int = 0


@dataclass(frozen=True, slots=True)
class IslandReport:
    """A maximal int8 region: its nodes in order, and its borders.

    gain: bytes that int8 is worth in it, by the cost model of islands; `cost`: those of its borders.
    """

    nodes: tuple[str, ...]
    borders: tuple[Border, ...]
    gain: int = 0

    @property
    def cost(self) -> int:
        """Bytes that conversions at the borders touch."""
        return sum(border.cost for border in self.borders)


@dataclass(frozen=True)
class QuantizationReport:
    """Everything that a summary or a report file tells about the quantization of one model.

    warnings: sentences on what the recipe asks for and did not get: rules that fit nothing, too little time.
    tensors: what was seen of every int8 value and the range of it that int8 covers. given: parameters are
    the model's own, not a profile's.
    """

    options: QuantizationOptions
    quantized: tuple[QuantizedNode, ...]
    float_nodes: tuple[FloatNode, ...]
    islands: tuple[IslandReport, ...]
    rescales_left: int
    rescales_folded: Mapping[str, int]
    weight_bytes_before: int
    weight_bytes_after: int
    pipeline: str
    log: tuple[LogEntry, ...]
    warnings: tuple[str, ...] = ()
    tensors: tuple[TensorRange, ...] = ()
    given: bool = False

    def summary(self) -> str:
        """A few lines for people."""
        folded = sum(self.rescales_folded.values())
        before, after = self.weight_bytes_before, self.weight_bytes_after
        lines = [
            f"{len(self.quantized)} nodes in int8, {len(self.float_nodes)} in float{self.halves()}, "
            f"{len(self.islands)} int8 regions with {sum(len(i.borders) for i in self.islands)} borders",
            f"conversions and rescales folded: {folded}, left: {self.rescales_left}",
            f"weights {before} bytes, now {after}" + (f" ({after / before:.0%})" if before else ""),
        ]
        margins = [(n.margin, n.name) for n in self.quantized if n.margin is not None]
        if margins:
            margin, name = min(margins)
            lines.append(f"int32 sums cannot overflow: the closest, '{name}', fits {margin:.1f} times")
        lines += [f"warning: {warning}" for warning in self.warnings]
        lines += [f"float: {n.name} ({n.operator}): {n.reason}" for n in self.float_nodes]
        return "\n".join(lines)

    def halves(self) -> str:
        """How many of the float nodes are of which type of 16 bits, in words."""
        counts = Counter(node.dtype for node in self.float_nodes if node.dtype != "float32")
        listed = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        return f" ({listed})" if listed else ""


def make_report(
    graph: Graph,
    options: QuantizationOptions,
    reasons: Mapping[str, str],
    margins: Mapping[str, float],
    bytes_before: int,
    pipeline: str,
    log: PassLog,
    halves: Mapping[str, str] | None = None,
) -> QuantizationReport:
    """The report of a finished int8 graph. `reasons` and `margins` are by node name, and so are the types
    of 16 bits in `halves`."""
    halves = halves or {}
    int8 = [node for node in graph.nodes if is_int8(node)]
    return QuantizationReport(
        options,
        tuple(_quantized(node, margins) for node in int8 if not isinstance(node.operator, Rescale)),
        tuple(_float_node(node, reasons, halves) for node in graph.nodes if _stays_float(node)),
        tuple(_island(graph, island, reasons) for island in connected(graph, int8)),
        sum(isinstance(node.operator, Rescale) for node in graph.nodes),
        {name: sum(entry.applied and entry.pass_name == name for entry in log.entries) for name in FOLDING},
        bytes_before,
        constant_bytes(graph),
        pipeline,
        tuple(log.entries),
    )


def constant_bytes(graph: Graph) -> int:
    """Bytes of all constants."""
    return sum(value.type.byte_size for value in graph.constants())


def is_int8(node: Node) -> bool:
    """Whether a node computes on int8 activations."""
    if isinstance(node.operator, Quantize | Dequantize):
        return False
    return any(v is not None and v.type.is_quantized and not v.is_constant for v in node.inputs)


def _stays_float(node: Node) -> bool:
    converts = isinstance(node.operator, Quantize | Dequantize | RoundTo)
    return handles_reals(node) and not converts and not is_int8(node)


def _quantized(node: Node, margins: Mapping[str, float]) -> QuantizedNode:
    return QuantizedNode(node.name, node.operator.name, str(node.output.type), margins.get(node.name))


def _float_node(node: Node, reasons: Mapping[str, str], halves: Mapping[str, str]) -> FloatNode:
    reason, dtype = reasons.get(node.name, PASSED_ON), halves.get(node.name, "float32")
    return FloatNode(node.name, node.operator.name, reason, dtype)


def _island(graph: Graph, island: list[Node], reasons: Mapping[str, str]) -> IslandReport:
    borders: dict[tuple[str, str], Border] = {}
    for border in _borders(graph, island, reasons):
        borders.setdefault((border.value, border.direction), border)
    return IslandReport(tuple(node.name for node in island), tuple(borders.values()), gain(island))


def _borders(graph: Graph, island: list[Node], reasons: Mapping[str, str]) -> Iterable[Border]:
    for node in island:
        for value in node.inputs:
            producer = None if value is None else value.producer
            if value is not None and producer is not None and isinstance(producer.operator, Quantize):
                size, reason = value.type.size, _source_reason(producer.inputs[0], reasons)
                yield Border(value.name, "in", size, reason, CONVERSION * size)
        for value in node.outputs:
            converted = not value.type.is_quantized
            leaving = [u for u in value.users() if isinstance(u.operator, Dequantize)]
            for real in [value] if converted else [user.output for user in leaving]:
                size, reason = value.type.size, _target_reason(graph, real, reasons)
                yield Border(value.name, "out", size, reason, 0 if converted else CONVERSION * size)


def _source_reason(value: Value | None, reasons: Mapping[str, str]) -> str:
    if value is None or value.producer is None:
        return "input of the model"
    node = value.producer
    return (
        f"{node.operator.name} '{node.name}' stays float: {reasons.get(node.name, 'no reason was recorded')}"
    )


def _target_reason(graph: Graph, value: Value, reasons: Mapping[str, str]) -> str:
    if graph.is_output(value):
        return "output of the model"
    users = value.users()
    if not users:
        return "nothing reads it"
    node = users[0]
    return (
        f"{node.operator.name} '{node.name}' stays float: {reasons.get(node.name, 'no reason was recorded')}"
    )
