"""Report of a quantization as data: which nodes are int8, which stay float and why, and what it cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from qglow.core.passes import LogEntry, PassLog
from qglow.display.lines import counted
from qglow.graph.graph import Graph, Node, Value
from qglow.passes.share_tables import ShareTables
from qglow.quantization.dynamic import DynamicProducts
from qglow.quantization.islands import CONVERSION, connected, gain
from qglow.quantization.placement import handles_reals
from qglow.quantization.tensors import TensorRange

PASSED_ON = "it only passes on a result that the int8 work before it gives in float"
"""Reason for a float node without one of its own: folding made the int8 node before it give float."""

FOLDING = ("cancel-conversions", "merge-rescales", "fold-rescale-up", "fold-rescale-down")


@dataclass(frozen=True, slots=True)
class QuantizedNode:
    """A node that runs in int8. margin: the int32 limit over its largest possible sum; None without sums.

    because: the rule that states int8, and the reason that it overrules; "" where there is none. dynamic:
    whether the scales of its rows are measured while the model runs. weights: their format in blocks, or "".
    """

    name: str
    operator: str
    result: str
    margin: float | None
    because: str = ""
    dynamic: bool = False
    weights: str = ""


@dataclass(frozen=True, slots=True)
class FloatNode:
    """A node that stays float, and why. dtype: the float type that its weights and results are rounded to, or
    the format of weights that alone are quantized.

    hosted: whether onnxruntime executes it; `operator` then names ONNX's operators.
    """

    name: str
    operator: str
    reason: str
    dtype: str = "float32"
    hosted: bool = False


@dataclass(frozen=True, slots=True)
class Border:
    """A value that passes between float and int8. `direction` is "in" or "out" of int8.

    cost: bytes that its conversion touches; 0 where a sum of products gives float without one.
    """

    value: str
    direction: str
    elements: int
    reason: str
    cost: int = 0


@dataclass(frozen=True, slots=True)
class IslandReport:
    """A maximal int8 region: its nodes in order, and its borders.

    gain: bytes that int8 saves in it, by the cost model of `quantization.islands`.
    """

    nodes: tuple[str, ...]
    borders: tuple[Border, ...]
    gain: int = 0

    @property
    def cost(self) -> int:
        """Bytes that the conversions at its borders touch."""
        return sum(border.cost for border in self.borders)


@dataclass(frozen=True, slots=True)
class Repair:
    """A change of the recipe, chosen by the profile's samples, or by its histograms if it has no samples.

    before_db, after_db: SQNR of the worst output on the samples without and with the change, in dB, as
    rehearsed; None without samples. values: names of the values that it changes, if it is for single ones.
    """

    what: str
    before_db: float | None
    after_db: float | None
    values: tuple[str, ...] = ()

    @property
    def won_db(self) -> float | None:
        """Gain in SQNR, in dB; None if that is not known."""
        if self.before_db is None or self.after_db is None:
            return None
        return self.after_db - self.before_db


@dataclass(frozen=True, repr=False)
class QuantizationReport:
    """Everything that a summary or a report file tells about the quantization of one model.

    warnings: sentences on what the recipe asks for and did not get: rules that fit nothing, too little time.
    tensors: histogram of every int8 value, and the range that int8 covers. given: whether parameters are
    the model's own, not from a profile. repairs: changes of the recipe that the profile's samples chose.
    tail: names of nodes that onnxruntime runs behind the graph. tail_kinds: their operators, for people.
    """

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
    repairs: tuple[Repair, ...] = ()
    tail: tuple[str, ...] = ()
    tail_kinds: str = ""

    def warned(self, sentence: str) -> QuantizationReport:
        """Return the report with one more warning."""
        return replace(self, warnings=(*self.warnings, sentence))

    def __repr__(self) -> str:
        int8, regions = counted(len(self.quantized), "node"), counted(len(self.islands), "int8 region")
        return f"QuantizationReport({int8} in int8, {len(self.float_nodes)} in float, {regions})"

    def summary(self) -> str:
        """A few lines for people."""
        folded = sum(self.rescales_folded.values())
        before, after = self.weight_bytes_before, self.weight_bytes_after
        lines = [
            f"{len(self.quantized)} nodes in int8{self.dynamic()}, "
            f"{len(self.float_nodes)} in float{self.halves()}, "
            f"{len(self.islands)} int8 regions with {sum(len(i.borders) for i in self.islands)} borders",
            f"conversions and rescales folded: {folded}, left: {self.rescales_left}",
            f"weights {before} bytes, now {after}" + (f" ({after / before:.0%})" if before else ""),
        ]
        margins = [(n.margin, n.name) for n in self.quantized if n.margin is not None]
        if margins:
            margin, name = min(margins)
            lines.append(f"int32 sums cannot overflow: the closest, '{name}', fits {margin:.1f} times")
        lines += [f"warning: {warning}" for warning in self.warnings]
        lines += [f"int8: {n.name} ({n.operator}): {n.because}" for n in self.quantized if n.because]
        lines += [f"float: {n.name} ({n.operator}): {n.reason}" for n in self.float_nodes]
        if self.tail:
            lines.append(f"behind them, in onnxruntime: {len(self.tail)} nodes ({self.tail_kinds})")
        return "\n".join(lines)

    def dynamic(self) -> str:
        """Return the number of int8 nodes with rows that are measured, in words; "" if there are none."""
        count = sum(node.dynamic for node in self.quantized)
        formats = Counter(node.weights for node in self.quantized if node.weights)
        listed = ", ".join(f"{number} {name}" for name, number in sorted(formats.items()))
        return f" ({count} with dynamic rows{f': {listed}' if listed else ''})" if count else ""

    def halves(self) -> str:
        """Return the number of float nodes in each type but float32, in words; "" if there are none."""
        counts = Counter(node.dtype for node in self.float_nodes if node.dtype != "float32")
        listed = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        return f" ({listed})" if listed else ""


def make_report(
    graph: Graph,
    reasons: Mapping[str, str],
    margins: Mapping[str, float],
    bytes_before: int,
    pipeline: str,
    log: PassLog,
    halves: Mapping[str, str] | None = None,
    stated: Mapping[str, str] | None = None,
    rows: DynamicProducts | None = None,
) -> QuantizationReport:
    """Return the report of a finished int8 graph.

    reasons, margins, halves: why nodes stay float, int32 margins, and 16-bit types, each by node name.
    stated: why nodes are int8 in spite of a reason. rows: products whose rows are scaled while the model
    runs; the nodes that were added for them are part of them.
    """
    halves, stated, rows = halves or {}, stated or {}, rows or DynamicProducts()
    margins, reasons = {**margins, **rows.margins}, {**reasons, **rows.reasons}
    int8 = [node for node in graph.nodes if is_int8(node)]
    return QuantizationReport(
        tuple(_quantized(node, margins, stated, rows) for node in int8 if not node.operator.rescales),
        tuple(
            _float_node(node, reasons, halves)
            for node in graph.nodes
            if _stays_float(node) and node.name not in rows.reasons
        ),
        tuple(_island(graph, island, reasons) for island in connected(graph, int8)),
        sum(node.operator.rescales for node in graph.nodes),
        {name: sum(entry.applied and entry.pass_name == name for entry in log.entries) for name in FOLDING},
        bytes_before,
        constant_bytes(graph),
        pipeline,
        tuple(log.entries),
        tail=() if graph.tail is None else graph.tail.nodes,
        tail_kinds="" if graph.tail is None else graph.tail.kinds,
    )


def constant_bytes(graph: Graph) -> int:
    """Bytes of all constants; a table that is the transpose of weights counts once, as programs hold it."""
    shared = graph.copy()
    ShareTables().run(shared, PassLog())
    sizes = {id(value.data): value.type.byte_size for value in shared.constants()}
    return sum(sizes.values())


def is_int8(node: Node) -> bool:
    """Whether a node computes on int8 activations, or looks up integers in a constant table."""
    if node.operator.is_border:
        return False
    if any(v is not None and v.type.is_quantized and not v.is_constant for v in node.inputs):
        return True
    # The table of a look-up and the first states of a recurrent layer may be constant.
    integers = node.operator.kept_operand is not None or node.operator.recurs is not None
    return integers and any(v.type.is_quantized for v in node.outputs)


def _stays_float(node: Node) -> bool:
    converts = node.operator.is_border or node.operator.rounds_to is not None
    return handles_reals(node) and not converts and not is_int8(node)


def _quantized(
    node: Node, margins: Mapping[str, float], stated: Mapping[str, str], rows: DynamicProducts
) -> QuantizedNode:
    margin, because = margins.get(node.name), stated.get(node.name, "")
    dynamic, weights = node.name in rows.margins, rows.formats.get(node.name, "")
    result = str(node.output.type)
    return QuantizedNode(node.name, node.operator.name, result, margin, because, dynamic, weights)


def _float_node(node: Node, reasons: Mapping[str, str], halves: Mapping[str, str]) -> FloatNode:
    reason, dtype = reasons.get(node.name, PASSED_ON), halves.get(node.name, "float32")
    hosted = node.operator.hosted
    kind = node.operator.name if hosted is None else hosted.kinds
    return FloatNode(node.name, kind, reason, dtype, hosted is not None)


def _island(graph: Graph, island: list[Node], reasons: Mapping[str, str]) -> IslandReport:
    borders: dict[tuple[str, str], Border] = {}
    for border in _borders(graph, island, reasons):
        borders.setdefault((border.value, border.direction), border)
    return IslandReport(tuple(node.name for node in island), tuple(borders.values()), gain(island))


def _borders(graph: Graph, island: list[Node], reasons: Mapping[str, str]) -> Iterable[Border]:
    for node in island:
        for value in node.inputs:
            producer = None if value is None or not value.type.is_quantized else value.producer
            if value is not None and producer is not None and producer.operator.is_border:
                size, reason = value.type.size, _source_reason(producer.inputs[0], reasons)
                yield Border(value.name, "in", size, reason, CONVERSION * size)
        for value in node.outputs:
            converted = not value.type.is_quantized
            leaving = [u for u in value.users() if u.operator.is_border]
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
