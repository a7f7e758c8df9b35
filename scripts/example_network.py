"""The example network: a plain residual block, inverted residual (depthwise) blocks, a linear head."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from qglow.core.types import Array


class ConvNorm(nn.Sequential):
    """Convolution without bias, batch norm and, where wanted, an activation."""

    def __init__(
        self, channels: int, filters: int, kernel: int, activation: str = "", stride: int = 1, groups: int = 1
    ) -> None:
        super().__init__(
            nn.Conv2d(channels, filters, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(filters),
        )
        self.activation = activation
        if activation:
            self.append(nn.ReLU6() if activation == "relu6" else nn.ReLU())


class Residual(nn.Module):
    """relu(x + conv(conv(x))), 3x3 both."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.ModuleList([ConvNorm(channels, channels, 3, "relu"), ConvNorm(channels, channels, 3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N,C,H,W] to the same shape."""
        return torch.relu(x + self.body[1](self.body[0](x)))


class InvertedResidual(nn.Module):
    """1x1 widening, depthwise 3x3, linear 1x1 narrowing; added to its input where shapes allow."""

    def __init__(self, channels: int, wide: int, filters: int, stride: int) -> None:
        super().__init__()
        self.adds = stride == 1 and channels == filters
        self.body = nn.ModuleList(
            [
                ConvNorm(channels, wide, 1, "relu6"),
                ConvNorm(wide, wide, 3, "relu6", stride, groups=wide),
                ConvNorm(wide, filters, 1),
            ]
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N,C,H,W] to [N,filters,ceil(H/stride),ceil(W/stride)]."""
        y = x
        for layer in self.body:
            y = layer(y)
        return x + y if self.adds else y


class DigitNet(nn.Module):
    """float32 [N,1,8,8] to logits [N,10]."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            [
                ConvNorm(1, 16, 3, "relu"),
                Residual(16),
                InvertedResidual(16, 48, 16, stride=1),
                InvertedResidual(16, 64, 32, stride=2),
                InvertedResidual(32, 96, 32, stride=1),
                ConvNorm(32, 64, 1, "relu"),
            ]
        )
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of a batch of images."""
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(x.mean((2, 3)))
        return logits


class _GraphWriter:
    """Collects ONNX nodes and weights; every method returns the name of the value it makes."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def constant(self, name: str, value: Array) -> str:
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(value, np.float32), name))
        return name

    def node(self, operator: str, inputs: list[str], name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [name], name=f"{name}/{operator}", **attributes))
        return name

    def conv_norm(self, x: str, layer: ConvNorm, name: str) -> str:
        conv, norm = layer[0], layer[1]
        assert isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d)
        pad, stride = int(conv.padding[0]), conv.stride[0]
        weight = self.constant(f"{name}.weight", _array(conv.weight))
        y = self.node(
            "Conv",
            [x, weight],
            f"{name}.conv",
            kernel_shape=list(conv.kernel_size),
            strides=[stride, stride],
            pads=[pad] * 4,
            group=conv.groups,
        )
        parameters = {
            "scale": norm.weight,
            "shift": norm.bias,
            "mean": norm.running_mean,
            "variance": norm.running_var,
        }
        names = [self.constant(f"{name}.bn.{key}", _array(value)) for key, value in parameters.items()]
        y = self.node("BatchNormalization", [y, *names], f"{name}.bn", epsilon=norm.eps)
        if layer.activation == "relu":
            return self.node("Relu", [y], f"{name}.relu")
        if layer.activation == "relu6":
            low, high = self.bounds()
            return self.node("Clip", [y, low, high], f"{name}.relu6")
        return y

    def bounds(self) -> tuple[str, str]:
        """Names of the constants 0 and 6 that every Clip shares."""
        if not any(weight.name == "clip.low" for weight in self.weights):
            self.constant("clip.low", np.zeros((), np.float32))
            self.constant("clip.high", np.full((), 6.0, np.float32))
        return "clip.low", "clip.high"

    def block(self, x: str, block: nn.Module, name: str) -> str:
        if isinstance(block, ConvNorm):
            return self.conv_norm(x, block, name)
        assert isinstance(block, Residual | InvertedResidual)
        y = x
        for index, layer in enumerate(block.body):
            y = self.conv_norm(y, layer, f"{name}.{index}")
        if isinstance(block, Residual):
            return self.node("Relu", [self.node("Add", [x, y], f"{name}.add")], f"{name}.relu")
        return self.node("Add", [x, y], f"{name}.add") if block.adds else y


def _array(value: object) -> Array:
    assert isinstance(value, torch.Tensor)
    result: Array = value.detach().numpy()
    return result


def to_onnx(net: DigitNet) -> onnx.ModelProto:
    """The trained network as it is trained: batch norms stay nodes of their own, the batch is dynamic."""
    writer = _GraphWriter()
    x = "input"
    for index, block in enumerate(net.blocks):
        x = writer.block(x, block, f"block{index}")
    x = writer.node("GlobalAveragePool", [x], "pool")
    x = writer.node("Flatten", [x], "features", axis=1)
    weight = writer.constant("head.weight", _array(net.head.weight))
    bias = writer.constant("head.bias", _array(net.head.bias))
    writer.node("Gemm", [x, weight, bias], "logits", transB=1)
    graph = helper.make_graph(
        writer.nodes,
        "digits",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 10])],
        writer.weights,
    )
    model = helper.make_model(
        graph, producer_name="qglow example", opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.checker.check_model(model, full_check=True)
    return model
