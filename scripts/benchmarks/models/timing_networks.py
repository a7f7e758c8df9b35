"""MobileNetV1 and MobileNetV2 at full width for 224 x 224 pixels, with random weights: for timing only.

Layers are as published (Howard et al. 2017, Sandler et al. 2018), batch normalizations folded into the
convolutions before them. Weights are drawn from He's normal distribution, seeded by the network, so that
the same files come out everywhere. What they answer means nothing. A ResNet-50 of this kind is among the
light networks.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

EDGE, CLASSES = 224, 1000
V1_BLOCKS = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *[(512, 1)] * 5,
    *((1024, 2), (1024, 1)),
)
"""(channels, stride) of each depthwise separable block."""
V2_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""(expansion, channels, blocks, stride of the first block) of each stage."""


class _Builder:
    """A graph that grows at its end."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._random = np.random.default_rng(zlib.crc32(name.encode()))
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[TensorProto] = []
        self.value, self.channels = "input", 3

    def convolution(
        self, channels: int, kernel: int = 1, stride: int = 1, depthwise: bool = False, clip: bool = True
    ) -> None:
        """A padded convolution with a bias; `clip`: and ReLU6."""
        groups = self.channels if depthwise else 1
        shape = (channels, self.channels // groups, kernel, kernel)
        weights = [self._weight(shape, math.prod(shape[1:])), self._bias(channels)]
        sides = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        self._add("Conv", weights, group=groups, **sides)
        self.channels = channels
        if clip:
            self._add("Clip", [self._tensor(np.float32(bound)) for bound in (0.0, 6.0)])

    def residual(self, value: str) -> None:
        """Add an earlier value."""
        self._add("Add", [value])

    def classifier(self) -> ModelProto:
        """Global average, matrix product, softmax; the whole model."""
        self._add("GlobalAveragePool", [])
        self._add("Flatten", [])
        self._add(
            "Gemm", [self._weight((CLASSES, self.channels), self.channels), self._bias(CLASSES)], transB=1
        )
        self._add("Softmax", [])
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (("input", [1, 3, EDGE, EDGE]), (self.value, [1, CLASSES]))
        ]
        graph = helper.make_graph(self._nodes, self._name, ends[:1], ends[1:], self._weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)

    def _add(self, operator: str, others: Sequence[str], **attributes: Any) -> None:
        name = f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, [self.value, *others], [name], name, **attributes))
        self.value = name

    def _weight(self, shape: tuple[int, ...], fan_in: int) -> str:
        drawn = self._random.standard_normal(shape, np.float32)
        return self._tensor(drawn * np.float32(math.sqrt(2.0 / fan_in)))

    def _bias(self, count: int) -> str:
        return self._tensor(self._random.standard_normal(count, np.float32) * np.float32(0.1))

    def _tensor(self, array: np.ndarray | np.float32) -> str:
        name = f"weight_{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name


def _mobilenet_v1() -> ModelProto:
    builder = _Builder("mobilenet_v1_224")
    builder.convolution(32, 3, 2)
    for channels, stride in V1_BLOCKS:
        builder.convolution(builder.channels, 3, stride, depthwise=True)
        builder.convolution(channels)
    return builder.classifier()


def _mobilenet_v2() -> ModelProto:
    builder = _Builder("mobilenet_v2_224")
    builder.convolution(32, 3, 2)
    for expansion, channels, blocks, first_stride in V2_STAGES:
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            start, narrow = builder.value, builder.channels
            if expansion > 1:
                builder.convolution(expansion * narrow)
            builder.convolution(builder.channels, 3, stride, depthwise=True)
            builder.convolution(channels, clip=False)
            if stride == 1 and channels == narrow:
                builder.residual(start)
    builder.convolution(1280)
    return builder.classifier()


NETWORKS = {"mobilenet_v1_224": _mobilenet_v1, "mobilenet_v2_224": _mobilenet_v2}


def timing_network(name: str) -> ModelProto:
    """One of NETWORKS."""
    return NETWORKS[name]()
