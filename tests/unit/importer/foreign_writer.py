"""Writes QDQ models node by node, with parameters from what the values are on a few inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from qglow.core.types import Array
from tests.unit.importer.tiny import session

Feeds = Mapping[str, Array]


class ForeignWriter:
    """Builds one model. Methods take and give names of values; parameters are those of its feeds.

    activations: the type of quantized activations, int8 or uint8. opset: of the default domain.
    """

    def __init__(self, feeds: Feeds, activations: type, opset: int, seed: int = 3) -> None:
        self.feeds, self.activations, self.opset = feeds, activations, opset
        self.outputs: list[str] = []
        self.rng = np.random.default_rng(seed)
        self._nodes: list[NodeProto] = []
        self._constants: list[TensorProto] = []

    def constant(self, array: Any, dtype: type = np.float32) -> str:
        """A constant of the model."""
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node with one result."""
        return self.several(kind, 1, *inputs, **attributes)[0]

    def several(self, kind: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """A node with `count` results."""
        name = f"{kind}_{len(self._nodes)}"
        results = [f"{name}_{place}" for place in range(count)]
        self._nodes.append(helper.make_node(kind, list(inputs), results, name=name, **attributes))
        return results

    def ranged(self, value: str) -> tuple[float, int]:
        """Scale and zero point that the range of a value asks for."""
        (found,) = session(self._model([value])).run(None, dict(self.feeds))
        low, high = min(float(found.min()), 0.0), max(float(found.max()), 0.0)
        limits = np.iinfo(self.activations)
        scale = max(high - low, 1e-3) / 255
        return scale, int(np.clip(round(limits.min - low / scale), limits.min, limits.max))

    def quantized(self, value: str, parameters: tuple[float, int] | None = None) -> str:
        """A QuantizeLinear and a DequantizeLinear behind a value, of its own parameters or of given ones."""
        integers, scale, zero = self.integers(value, parameters)
        return self.node("DequantizeLinear", integers, scale, zero)

    def quantized_by_channel(self, value: str, dtype: type, zeros: Array | None = None) -> str:
        """The pair behind a value, with a scale for each place of axis 1, and zero points (default: 0)."""
        (found,) = session(self._model([value])).run(None, dict(self.feeds))
        largest = np.abs(found).max(tuple(axis for axis in range(found.ndim) if axis != 1))
        scales = np.maximum(largest, 1e-2) / np.iinfo(dtype).max
        zeros = np.zeros(scales.size) if zeros is None else zeros
        names = self.constant(scales), self.constant(zeros, dtype)
        return self.node("DequantizeLinear", self.node("QuantizeLinear", value, *names), *names)

    def integers(self, value: str, parameters: tuple[float, int] | None = None) -> tuple[str, str, str]:
        """A QuantizeLinear behind a value: its result, its scale and its zero point."""
        scale, zero = parameters or self.ranged(value)
        names = self.constant(scale), self.constant(zero, self.activations)
        return self.node("QuantizeLinear", value, *names), *names

    def weights(self, *shape: int, axis: int | None = 0, dtype: type = np.int8, zero: int = 0) -> str:
        """Drawn weights with a DequantizeLinear: a scale for each place of an axis, or one."""
        return self.node("DequantizeLinear", *self._drawn(shape, axis, dtype, zero), **_along(axis))

    def weights_and_bias(
        self,
        given: tuple[float, int],
        *shape: int,
        axis: int | None = 0,
        channels: int | None = None,
        dtype: type = np.int8,
        zero: int = 0,
    ) -> tuple[str, str]:
        """Drawn weights, and an int32 bias of the scale of their products with what has parameters `given`.

        channels: number of biases; None for that of the first axis.
        """
        drawn = self._drawn(shape, axis, dtype, zero)
        weights = self.node("DequantizeLinear", *drawn, **_along(axis))
        scales = np.float32(given[0]) * numpy_helper.to_array(self._constants[-2])
        bias = self.rng.integers(-2000, 2000, channels or shape[0])
        operands = self.constant(bias, np.int32), self.constant(scales), self.constant(0 * scales, np.int32)
        return weights, self.node("DequantizeLinear", *operands, **_along(None if axis is None else 0))

    def given(self, value: str) -> tuple[float, int]:
        """Parameters of the DequantizeLinear that a value comes from."""
        [node] = [node for node in self._nodes if value in node.output]
        constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in self._constants}
        return float(constants[node.input[1]]), int(constants[node.input[2]])

    def _drawn(
        self, shape: tuple[int, ...], axis: int | None, dtype: type, zero: int
    ) -> tuple[str, str, str]:
        values = zero + self.rng.integers(-60, 61, shape)
        scales = self.rng.uniform(0.5, 1.5, () if axis is None else shape[axis]) * 0.01
        zeros = np.full_like(scales, zero)
        return self.constant(values, dtype), self.constant(scales), self.constant(zeros, dtype)

    def model(self) -> onnx.ModelProto:
        """The model with the outputs that were listed."""
        return self._model(self.outputs)

    def _model(self, outputs: list[str]) -> onnx.ModelProto:
        graph = helper.make_graph(
            self._nodes,
            "foreign",
            [_info(name, array) for name, array in self.feeds.items()],
            [helper.make_empty_tensor_value_info(name) for name in outputs],
            self._constants,
        )
        opsets = [helper.make_opsetid("", self.opset)]
        whole = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return onnx.shape_inference.infer_shapes(whole)


def _along(axis: int | None) -> dict[str, int]:
    return {} if axis is None else {"axis": axis}


def _info(name: str, array: Array) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
