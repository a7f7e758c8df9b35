"""The nine real networks whose topologies the onnx package carries, with weights that do something.

As shipped (onnx/backend/test/data/light), all weights are one constant, so that every input gives the
same output. Here each weight is drawn anew, seeded by its network: convolutions and matrix products from
He's normal distribution (He et al. 2015), the others around what leaves a signal as it is. The statistics
of batch normalizations are measured, so that activations neither explode nor vanish.
The same weights come out everywhere.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from qglow.core.types import Array
from qglow.report.oracle import OnnxruntimeModel
from scripts.benchmarks.models.drawn import drawn_samples

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
NETWORKS = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)
MEASURED = 4
"""Samples that statistics are measured on."""
FACTORS = (0.8, 1.2)
OFFSETS = 0.1
"""Bounds of the factors of channels, and the deviation of what is added to them."""


def light_network(name: str) -> ModelProto:
    """One of NETWORKS with drawn weights. Only its real input is an input."""
    model = onnx.load(LIGHT / f"light_{name}.onnx")
    model.ir_version = 4  # the first in which weights need not be inputs
    _Drawing(model.graph, np.random.default_rng(zlib.crc32(name.encode()))).draw()
    _measure_statistics(model)
    return model


class _Drawing:
    """Replaces the weights of a graph, node by node in its order."""

    def __init__(self, graph: GraphProto, random: np.random.Generator) -> None:
        self._graph = graph
        self._random = random
        self._shapes = _weight_shapes(graph)
        self._drawn: dict[str, Array] = {}
        self._sources = {name: name for name in self._shapes}

    def draw(self) -> None:
        """All weights; what filled them with constants, and their entries as inputs, go."""
        graph = self._graph
        known = {tensor.name for tensor in graph.initializer}
        inputs = [value for value in graph.input if value.name not in known]
        nodes = [node for node in graph.node if node.op_type != "ConstantOfShape"]
        for node in nodes:
            if node.input[0] in self._sources:
                self._sources[node.output[0]] = self._sources[node.input[0]]
            elif node.op_type in _ROLES:
                _ROLES[node.op_type](self, node)
        used = {name for node in nodes for name in node.input}
        kept = [t for t in graph.initializer if t.data_type == TensorProto.INT64 and t.name in used]
        drawn = [numpy_helper.from_array(array, name) for name, array in self._drawn.items()]
        for field, content in ((graph.node, nodes), (graph.input, inputs), (graph.initializer, kept + drawn)):
            del field[:]
            field.extend(content)

    def product(self, node: NodeProto) -> None:
        """Conv and Gemm: a Relu halves the mean square that these weights double."""
        weight = self._sources[node.input[1]]
        shape = self._shapes[weight]
        fan_in = shape[-1] if node.op_type == "Gemm" else math.prod(shape[1:])
        self._normal(weight, math.sqrt(2.0 / fan_in))
        for bias in node.input[2:]:
            self._normal(bias, OFFSETS)

    def batch_normalization(self, node: NodeProto) -> None:
        """Without an effect at first; `_measure_statistics` has to follow."""
        _, scale, bias, mean, variance = node.input
        self._uniform(scale, *FACTORS)
        self._normal(bias, OFFSETS)
        self._normal(mean, 0.0)
        self._uniform(variance, 1.0, 1.0)

    def factor(self, node: NodeProto) -> None:
        """A multiplication by a weight for each channel."""
        self._uniform(self._sources[node.input[1]], *FACTORS)

    def summand(self, node: NodeProto) -> None:
        """An addition of a weight for each channel."""
        self._normal(self._sources[node.input[1]], OFFSETS)

    def _normal(self, name: str, deviation: float) -> None:
        drawn = self._random.standard_normal(self._shapes[name], np.float32)
        drawn *= np.float32(deviation)
        self._drawn[name] = drawn

    def _uniform(self, name: str, low: float, high: float) -> None:
        self._drawn[name] = self._random.uniform(low, high, self._shapes[name]).astype(np.float32)


_ROLES: Mapping[str, Callable[[_Drawing, NodeProto], None]] = {
    "Conv": _Drawing.product,
    "Gemm": _Drawing.product,
    "BatchNormalization": _Drawing.batch_normalization,
    "Mul": _Drawing.factor,
    "Add": _Drawing.summand,
}
"""How operators draw their weights."""


def _measure_statistics(model: ModelProto) -> None:
    """Give batch normalizations the means and variances of their channels over a few samples.

    Instance normalizations in their places have the same effect before the statistics are known, so
    that one run shows them all.
    """
    normalized = {node.input[0]: node for node in model.graph.node if node.op_type == "BatchNormalization"}
    if not normalized:
        return
    probe = ModelProto()
    probe.CopyFrom(model)
    for node in probe.graph.node:
        if node.op_type == "BatchNormalization":
            node.op_type = "InstanceNormalization"
            del node.input[3:]
    probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in normalized)
    session = OnnxruntimeModel(probe.SerializeToString())
    [(name, samples)] = drawn_samples(model, MEASURED).items()
    runs = [session({name: sample[None]}) for sample in samples]
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for value, node in normalized.items():
        seen = np.concatenate([run[value] for run in runs])
        for weight, array in zip(node.input[3:], (seen.mean((0, 2, 3)), seen.var((0, 2, 3))), strict=True):
            tensors[weight].CopyFrom(numpy_helper.from_array(array.astype(np.float32), weight))


def _weight_shapes(graph: GraphProto) -> dict[str, tuple[int, ...]]:
    """Shapes of all float weights, shipped as tensors or as constants of a shape."""
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    shapes = {n: tuple(t.dims) for n, t in tensors.items() if t.data_type == TensorProto.FLOAT}
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shapes[node.output[0]] = tuple(map(int, numpy_helper.to_array(tensors[node.input[0]])))
    return shapes
