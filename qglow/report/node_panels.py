"""Facts of every node of an int8 graph, for its box in the drawing and the panel behind it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from qglow.core.text import format_attributes
from qglow.core.types import TensorType
from qglow.display.blocks import decibels, percent, significant
from qglow.display.node_panel import NodePanel
from qglow.graph.graph import Graph, Node, Value
from qglow.quantization.report import FloatNode, QuantizationReport, QuantizedNode, is_int8
from qglow.quantization.tensors import TensorRange
from qglow.report.channel_plots import channel_plots
from qglow.report.diagnosis import Diagnosis
from qglow.report.layer_report import LayerError, LayerReport
from qglow.report.node_kernels import NodeCode
from qglow.report.policies import policy_text
from qglow.report.value_ranges import histogram_sqnr_db, profiled_range

INT8, INT16, FLOAT, HOSTED, CONVERSION, INTEGER = (
    "int8",
    "int16",
    "float32",
    "onnxruntime",
    "conversion",
    "integer",
)
"""Words for precisions; that of a float node with fewer bits is the name of the type."""


def node_panels(
    graph: Graph,
    report: QuantizationReport,
    layers: LayerReport | None = None,
    diagnosis: Diagnosis | None = None,
    kernels: Mapping[str, NodeCode] | None = None,
) -> tuple[NodePanel, ...]:
    """The nodes of a graph in its order. kernels: of compiled code, by the name of the node."""
    panels = _Panels(graph, report, layers, diagnosis, kernels or {})
    return tuple(panels.panel(node) for node in graph.nodes)


def data_movement(node: Node) -> bool:
    """Whether a node only moves elements, and computes nothing."""
    return node.operator.moves_elements or node.operator.rearranges


class _Panels:
    def __init__(
        self,
        graph: Graph,
        report: QuantizationReport,
        layers: LayerReport | None,
        diagnosis: Diagnosis | None,
        kernels: Mapping[str, NodeCode],
    ) -> None:
        self._numbers = {node: number for number, node in enumerate(graph.nodes)}
        self._ranges = {tensor.value: tensor for tensor in report.tensors}
        self._pictures = {tensor.value: number for number, tensor in enumerate(report.tensors)}
        self._quantized = {node.name: node for node in report.quantized}
        self._floats = {node.name: node for node in report.float_nodes}
        self._regions = {n: i for i, island in enumerate(report.islands, start=1) for n in island.nodes}
        self._layers = {} if layers is None else {layer.node: layer for layer in layers.layers}
        self._diagnosis, self._kernels = diagnosis, kernels

    def panel(self, node: Node) -> NodePanel:
        values = [v for v in (*node.inputs, *node.outputs) if v is not None and not v.is_constant]
        ranges = {v: profiled_range(v, self._ranges) for v in values}
        db, error = self._error(node, ranges)
        sources = [v.producer for v in node.inputs if v is not None and v.producer is not None]
        targets = [user for value in node.outputs for user in value.users()]
        return NodePanel(
            node.name,
            node.operator.name,
            tuple(value.name for value in node.outputs),
            _shape(node.outputs[0].type) if node.outputs else "",
            self._precision(node),
            data_movement(node),
            self._regions.get(node.name, 0),
            db,
            error,
            tuple(self._facts(node, ranges, error)),
            tuple(dict.fromkeys(self._pictures[r.value] for r in ranges.values() if r is not None)),
            channel_plots(node),
            tuple(self._numbers[one] for one in dict.fromkeys(sources)),
            tuple(self._numbers[one] for one in dict.fromkeys(targets)),
        )

    def _precision(self, node: Node) -> str:
        real = self._floats.get(node.name)
        if real is not None:
            return HOSTED if real.hosted else real.dtype
        if node.operator.conversion is not None or node.operator.rounds_to is not None:
            return CONVERSION
        if is_int8(node):
            known = [v.type.quantization for v in (*node.inputs, *node.outputs) if v is not None]
            return INT16 if any(q is not None and q.is_wide for q in known) else INT8
        return FLOAT if any(value.type.is_float for value in node.outputs) else INTEGER

    def _error(self, node: Node, ranges: Mapping[Value, TensorRange | None]) -> tuple[float | None, str]:
        """SQNR of the node alone: measured where layers were, else estimated from the profile."""
        layer = self._layers.get(node.name)
        if layer is not None and layer.isolated is not None:
            db = layer.isolated.sqnr_db
            return db if math.isfinite(db) else None, f"{decibels(db)}, measured, of this node alone"
        for value in node.outputs:
            tensor = ranges.get(value) if value.type.is_quantized else None
            db_of_value = None if tensor is None else histogram_sqnr_db(tensor)
            if db_of_value is not None:
                return db_of_value, f"about {decibels(db_of_value)}, by the histogram of its result"
        return None, ""

    def _facts(
        self, node: Node, ranges: Mapping[Value, TensorRange | None], error: str
    ) -> Iterator[tuple[str, str]]:
        yield "operator", f"{node.operator.name} {format_attributes(node.operator)}".strip()
        yield "quantization", policy_text(type(node.operator))
        yield from _reasons(self._quantized.get(node.name), self._floats.get(node.name))
        if node.name in self._regions:
            yield "int8 region", str(self._regions[node.name])
        if error:
            yield "SQNR", error
        yield from _measured(self._layers.get(node.name))
        yield from self._noise(node)
        for value in (*node.inputs, *node.outputs):
            if value is not None:
                yield _title(node, value), _told(value, ranges.get(value))
        if node.name in self._kernels:
            yield from self._kernels[node.name].facts()

    def _noise(self, node: Node) -> Iterator[tuple[str, str]]:
        found = None if self._diagnosis is None else self._diagnosis.of(node.name)
        if found is not None and self._diagnosis is not None:
            yield "noise at the outputs", f"{percent(self._diagnosis.share(found))} of it from here"


def _reasons(int8: QuantizedNode | None, real: FloatNode | None) -> Iterator[tuple[str, str]]:
    if real is not None:
        yield "stays float", real.reason
    if int8 is None:
        return
    if int8.because:
        yield "because", int8.because
    if int8.dynamic:
        yield "rows", "scales are measured while the model runs"
    if int8.margin is not None:
        yield "int32 sums", f"the largest possible one fits {int8.margin:.1f} times"


def _measured(layer: LayerError | None) -> Iterator[tuple[str, str]]:
    if layer is None:
        return
    if layer.accumulated is not None:
        yield "accumulated SQNR", f"{decibels(layer.accumulated.sqnr_db)}, of the program up to here"
    if layer.rounding is not None:
        yield "rounding", f"RMSE of {layer.rounding:.3f} scales; 0.289 where int8 only rounds"
    if layer.saturated is not None:
        yield "saturated", percent(layer.saturated)


def _title(node: Node, value: Value) -> str:
    return "result" if value in node.outputs else "constant" if value.is_constant else "operand"


def _told(value: Value, tensor: TensorRange | None) -> str:
    """A value in words: its type, its parameters, and what the profile saw of it."""
    quantization, text = value.type.quantization, f"{value.name}: {_kind(value.type)}"
    if quantization is None:
        return text
    if len(quantization.scales) > 1:
        ends = f"{min(quantization.scales):.4g} to {max(quantization.scales):.4g}"
        return f"{text}, {len(quantization.scales)} scales, {ends}"
    text += f", scale {significant(quantization.scales[0], 4)}, zero point {quantization.zero_points[0]}"
    covered = value.type.real_range()
    if covered is None or value.is_constant:
        return text
    text += f", covers {covered[0]:.4g} to {covered[1]:.4g}"
    if tensor is None:
        return text
    seen = f"{tensor.seen_low:.4g} to {tensor.seen_high:.4g}"
    return f"{text}, seen {seen}, {percent(tensor.clipped)} clipped ({tensor.calibration})"


def _kind(kind: TensorType) -> str:
    return f"{kind.element.name.lower()} [{_shape(kind)}]"


def _shape(kind: TensorType) -> str:
    return "×".join(str(extent) for extent in kind.shape)
