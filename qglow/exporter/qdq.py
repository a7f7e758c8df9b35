"""The int8 graph as standard ONNX with QuantizeLinear and DequantizeLinear around every operator.

How tensors are named, for a value `v` of the graph:

    v            its real value: the DequantizeLinear of a quantized value, or the float value itself
    v__q         its integers, uint8 (`q + 128`, zero point + 128) unless int8 is asked for, or int16
    v__real      what the operator gives, before QuantizeLinear
    An int8 input or output of the graph is v itself, and v__float is its real value.

    A constant v of 16 bits is v__f16 or v__bf16, and v what a Cast makes of it.

    v__scale, v__zero_point    its parameters; activations with equal ones share those of the first

int16 values are int16 there too, as QuantizeLinear has them from operator set 21 on; onnxruntime computes
with their reals. Weights are int8 per channel, biases int32 with scale float32(s_x * s_w) and no zero point.
A fused Relu or Clip is left out where the parameters imply it by saturation. Where they do not,
it acts between two QuantizeLinear of equal parameters: that is exactly the narrowed clamp of an
int8 operator, and onnxruntime still finds its DequantizeLinear-operator-QuantizeLinear pattern.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import onnx

from qglow.core.errors import InternalError, UsageError
from qglow.core.types import Array, ElementType, Quantization
from qglow.exporter.apart import DataApart
from qglow.exporter.control import export_structured
from qglow.exporter.files import write_model
from qglow.exporter.fixed_point import FixedPointExport
from qglow.exporter.opaque import export_opaque, export_tail, output_types
from qglow.exporter.operators import clamp, export_operator, fused_bounds, steps_in_fixed_point
from qglow.exporter.proto import ONNX_TYPES, ProtoBuilder, unique
from qglow.exporter.rows import (
    export_row_scales_product,
    export_sum_of_integers,
    is_sum_of_integers,
    multiplies_row_scales,
)
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import Accumulate
from qglow.numerics.quantize import parameters
from qglow.numerics.requantize import quantized_bounds

Activations = Literal["uint8", "int8"]


def activation_type(name: str) -> Activations:
    """The type of this name. Raises UsageError for another than uint8 and int8."""
    if name == "uint8":
        return "uint8"
    if name == "int8":
        return "int8"
    raise UsageError(f"activations {name!r} are not uint8 or int8")


def export_qdq(
    graph: Graph,
    path: Path | str | None = None,
    activations: Activations = "uint8",
    apart: DataApart | None = None,
) -> onnx.ModelProto:
    """A quantized graph as an ONNX model that any runtime runs; written to `path` unless it is None.

    Inputs and outputs keep their names; int8 ones hold integers as all activations do. The same graph
    gives the same bytes. apart: keeps the data of large constants; such a model is no file yet, see there.
    """
    writer = _Writer(graph, activations, apart=apart)
    for node in graph.nodes:
        if node.outputs:
            writer.node(node)
    model = writer.finish()
    write_model(model, path)
    return model


def quantized_value_names(graph: Graph) -> dict[str, str]:
    """Map every int8 activation of the graph to the name of its integer tensor in the exported model."""
    return {value.name: name for value, name in _integer_names(graph).items() if not value.is_constant}


def quantized_constants(graph: Graph) -> dict[str, Value]:
    """Constants of the graph that have parameters, by the names of their integers in the exported model."""
    return {name: value for value, name in _integer_names(graph).items() if value.is_constant}


def _integer_names(graph: Graph, fresh: Callable[[str], str] | None = None) -> dict[Value, str]:
    values = list(graph.values())
    taken = {value.name for value in values}
    fresh = fresh or (lambda wanted: unique(wanted, taken))
    seen = {*graph.inputs, *graph.outputs}
    return {
        value: value.name if value in seen else fresh(f"{value.name}__q")
        for value in values
        if value.type.is_quantized
    }


@dataclass(frozen=True)
class _Parameters:
    """Names of scale and zero point in the model, and the axis they run along."""

    scale: str
    zero_point: str
    axis: int | None

    @property
    def attributes(self) -> dict[str, int]:
        return {} if self.axis is None else {"axis": self.axis}


class _Writer:
    def __init__(
        self,
        graph: Graph,
        activations: Activations,
        builder: ProtoBuilder | None = None,
        apart: DataApart | None = None,
    ) -> None:
        """builder: of the body that a region becomes; None for a graph of its own."""
        self._graph, self._activations = graph, activations
        self._offset = 128 if activations == "uint8" else 0
        self._integers = _integer_names(graph, None if builder is None else builder.fresh)
        results = () if graph.tail is None else graph.tail.results
        reserved = [*(v.name for v in graph.values()), *self._integers.values(), *results]
        self._builder = ProtoBuilder(reserved, apart) if builder is None else builder
        self._parameters: dict[tuple[Quantization, bool, str], _Parameters] = {}
        self._real: dict[Value, str] = {}

    def finish(self) -> onnx.ModelProto:
        graph = self._graph
        for value in graph.outputs:
            if value.data is not None:
                self._builder.initializer(value.name, value.data)
        if graph.tail is not None:
            export_tail(self._builder, graph.tail)
        inputs = [(v.name, v.type) for v in graph.inputs]
        return self._builder.finish(graph.name, inputs, output_types(graph), unsigned=self._offset > 0)

    # Nodes

    def node(self, node: Node) -> None:
        if node.operator.dequantizes:
            self._dequantize(node.inputs[0], node.output.name, node.name)
        elif node.operator.hosted is not None:
            export_opaque(self._builder, node, node.operator.hosted, self._operands(node))
        elif node.operator.region_names:
            export_structured(self._builder, node, self._operands(node), self._region)
        elif (steps := steps_in_fixed_point(node)) is not None:
            export = FixedPointExport(self._builder, node, self._integer_names_of, self._offset)
            export.write(steps, self._integers[node.output])
        elif is_sum_of_integers(node):
            self._sum_of_integers(node)
        elif multiplies_row_scales(node):
            scales, columns = (_present(value) for value in node.inputs)
            assert columns.data is not None
            export_row_scales_product(self._builder, node, scales.name, columns.data)
        elif node.operator.conversion is not None:
            self._finish_output(node, self._real_name(_present(node.inputs[0])))
        else:
            raw = self._result_name(node)
            export_operator(self._builder, node, self._operands(node), raw)
            self._finish_output(node, raw)

    def _region(self, builder: ProtoBuilder, region: Graph) -> None:
        """Write the nodes of a region, whose values have names that no others have."""
        writer = _Writer(region, self._activations, builder)
        for node in region.nodes:
            if node.outputs:
                writer.node(node)

    def _integer_names_of(self, value: Value) -> tuple[str, str]:
        """The integers of a value and their zero point, constants written on first need."""
        if value.data is not None:
            self._builder.initializer(self._integers[value], value.data)
        return self._integers[value], self._names_of(value, value.is_constant).zero_point

    def _sum_of_integers(self, node: Node) -> None:
        x, w = (_present(value) for value in node.inputs[:2])
        assert w.data is not None
        weights = self._builder.initializer(self._integers[w], w.data)
        zero_point = self._names_of(x, is_weight=False).zero_point
        export_sum_of_integers(self._builder, node, self._integers[x], weights, zero_point)

    def _operands(self, node: Node) -> list[str]:
        names = ["" if v is None else self._operand(node, v) for v in node.inputs]
        return names

    def _operand(self, node: Node, value: Value) -> str:
        policy = node.operator.policy
        if isinstance(policy, Accumulate) and value.type.element is ElementType.INT32:
            return self._bias(node, value, policy)
        return self._real_name(value)

    def _result_name(self, node: Node) -> str:
        """Name of the bare operator's result: the value's own if nothing follows it."""
        output = node.output
        if output.type.is_quantized:
            return self._builder.fresh(f"{output.name}__real")
        if fused_bounds(node.operator) != (-np.inf, np.inf):
            return self._builder.fresh(f"{output.name}__unclipped")
        return output.name

    def _finish_output(self, node: Node, raw: str) -> None:
        """Clamp and quantize the result `raw` as the node's output asks for."""
        output, bounds = node.output, fused_bounds(node.operator)
        if output.type.quantization is None:
            if raw != output.name:
                clamp(self._builder, f"{node.name}__clamp", raw, bounds, output.name)
            return
        if self._is_implied(bounds, output.type.quantization):
            self._quantize(raw, output, self._integers[output], node.name)
            return
        first = self._quantize(raw, output, self._builder.fresh(f"{output.name}__unclipped_q"), node.name)
        back = self._builder.fresh(f"{output.name}__unclipped")
        self._dequantize_as(output, first, back, f"{node.name}__unclipped")
        clipped = self._builder.fresh(f"{output.name}__clipped")
        clamp(self._builder, f"{node.name}__clamp", back, bounds, clipped)
        self._quantize(clipped, output, self._integers[output], f"{node.name}__clipped")

    @staticmethod
    def _is_implied(bounds: tuple[float, float], quantization: Quantization) -> bool:
        """Whether saturation alone keeps results within the bounds."""
        return quantized_bounds(*bounds, quantization) == (quantization.smallest, quantization.largest)

    # Integers and reals

    def _real_name(self, value: Value) -> str:
        """The tensor with the real values of a graph value; dequantized on first need."""
        if not (value.is_constant or value.type.is_quantized):
            return value.name
        if value in self._real:
            return self._real[value]
        self._real[value] = value.name
        if value.type.is_quantized:
            if self._integers[value] == value.name:
                self._real[value] = self._builder.fresh(f"{value.name}__float")
            self._dequantize(value, self._real[value], value.name)
        elif value.data is not None and value.type.is_half:
            self._widen(value, value.data)
        elif value.data is not None:
            self._builder.initializer(value.name, value.data)
        return self._real[value]

    def _widen(self, value: Value, data: Array) -> None:
        """A constant of 16 bits, read through a Cast."""
        name = self._builder.fresh(f"{value.name}__{value.type.element.value}")
        stored = self._builder.half_initializer(name, data, value.type.element)
        to = ONNX_TYPES[ElementType.FLOAT]
        self._builder.node("Cast", f"{value.name}__widen", [stored], value.name, to=to)

    def _quantize(self, real: str, value: Value, result: str, name: str) -> str:
        assert value.type.quantization is not None
        given = self._names_of(value, is_weight=False)
        return self._builder.node(
            "QuantizeLinear",
            f"{name}__quantize",
            [real, given.scale, given.zero_point],
            result,
            **given.attributes,
        )

    def _dequantize(self, value: Value | None, result: str, name: str) -> None:
        value = _present(value)
        if value.type.quantization is None:
            raise InternalError(f"%{value.name} is dequantized but is not quantized")
        if value.data is not None:
            self._builder.initializer(self._integers[value], value.data)
        self._dequantize_as(value, self._integers[value], result, name)

    def _dequantize_as(self, value: Value, integers: str, result: str, name: str) -> None:
        """Dequantize `integers` with the parameters of `value`."""
        assert value.type.quantization is not None
        given = self._names_of(value, value.is_constant)
        inputs = [integers, given.scale, given.zero_point]
        self._builder.node("DequantizeLinear", f"{name}__dequantize", inputs, result, **given.attributes)

    def _names_of(self, value: Value, is_weight: bool) -> _Parameters:
        """Constants of a value's parameters, shared by activations with equal ones; weights stay int8.

        Each weight has its own, because onnxruntime fails to make two weights uint8 that share a zero point,
        as it does where it is asked for exact sums on a processor without VNNI.
        """
        name, quantization = value.name, value.type.quantization
        assert quantization is not None
        shifted = (self._offset > 0 or value.type.unsigned) and not (is_weight or quantization.is_wide)
        key = (quantization, shifted, name if is_weight else "")
        if key in self._parameters:
            return self._parameters[key]
        scales, zeros = parameters(quantization)
        integers: Array = zeros.astype(quantization.element.dtype)
        if shifted:
            integers = (zeros + 128).astype(np.uint8)
        self._parameters[key] = _Parameters(
            self._builder.constant(f"{name}__scale", scales),
            self._builder.constant(f"{name}__zero_point", integers),
            quantization.axis,
        )
        return self._parameters[key]

    def _bias(self, node: Node, value: Value, policy: Accumulate) -> str:
        """An int32 bias behind a DequantizeLinear with scale float32(s_x * s_w)."""
        x, w = _present(node.operand(policy.x)), _present(node.operand(policy.w))
        if value.data is None or x.type.quantization is None or w.type.quantization is None:
            raise InternalError(f"{node}: an integer bias needs quantized operands and constant data")
        s_x, s_w = parameters(x.type.quantization)[0], parameters(w.type.quantization)[0]
        scale = self._builder.constant(f"{node.name}__bias_scale", np.asarray(s_x * s_w, np.float32))
        zero = self._builder.constant(f"{node.name}__bias_zero_point", np.zeros_like(s_w, np.int32))
        integers = self._builder.initializer(value.name, value.data)
        result = self._builder.fresh(f"{node.name}__bias")
        axis = {} if s_w.ndim == 0 else {"axis": 0}
        return self._builder.node(
            "DequantizeLinear", f"{node.name}__bias_dequantize", [integers, scale, zero], result, **axis
        )


def _present(value: Value | None) -> Value:
    if value is None:
        raise InternalError("a required operand is missing")
    return value
