"""Problems: small graphs with inputs, on which every runtime must give the same answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from qglow.core.types import Array, ElementType, Quantization, Shape, TensorType
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Value
from qglow.graph.ops.quantize import Dequantize, Quantize
from qglow.numerics.weights import quantize_bias, quantize_weights, weight_scales


@dataclass(frozen=True)
class Problem:
    """A graph and inputs for it. `exact`: float outputs are equal in every bit, too."""

    name: str
    graph: Graph
    inputs: dict[str, Array]
    exact: bool = True


Maker = Callable[[np.random.Generator], Problem]


class Drawing:
    """Builds one random problem: a graph between float inputs and float outputs."""

    def __init__(self, name: str, random: np.random.Generator) -> None:
        self.name = name
        self.random = random
        self.builder = GraphBuilder(name)
        self.inputs: dict[str, Array] = {}

    def real(self, *shape: int) -> Value:
        """A float input with values that bite: large, tiny and tied ones among normal ones."""
        name = f"x{len(self.inputs)}"
        self.inputs[name] = awkward(self.random, shape)
        return self.builder.input(name, TensorType(ElementType.FLOAT, shape))

    def integers(self, *shape: int, zero_point: int | None = None) -> Value:
        """An int8 value: a float input, quantized so that saturated values occur."""
        return self.quantized(self.real(*shape), zero_point)

    def quantized(self, value: Value, zero_point: int | None = None) -> Value:
        """A float value as int8 with random parameters."""
        kind = value.type.quantized(self.parameters(zero_point))
        return self.builder.node(Quantize(), value, output_types=[kind])

    def parameters(self, zero_point: int | None = None) -> Quantization:
        """A random scale, and a zero point that is often at an end of its range."""
        if zero_point is None:
            zero_point = int(self.random.choice([-128, 127, 0, *self.random.integers(-128, 128, 2)]))
        return Quantization.per_tensor(float(np.float32(2.0 ** self.random.uniform(-7, -3))), zero_point)

    def weights(self, *shape: int) -> Array:
        """Normal float32 weights."""
        return self.random.normal(size=shape).astype(np.float32)

    def int8_weights(self, x: Value, axis: int, *shape: int) -> tuple[Value, Value]:
        """Weights per channel of `axis` and the int32 bias that goes with x."""
        scale = 1.0 if x.type.quantization is None else x.type.quantization.scale
        w = self.weights(*shape)
        bias = self.weights(shape[axis])
        scales = weight_scales(w, bias, scale, axis)
        stored = self.builder.constant(
            "w", quantize_weights(w, scales, axis), Quantization.per_channel(scales, axis)
        )
        return stored, self.builder.constant("bias", quantize_bias(bias, scale, scales))

    def int8_like(self, shape: Shape) -> TensorType:
        """An int8 type of this shape with random parameters."""
        return TensorType(ElementType.INT8, shape, self.parameters())

    def finish(self, *values: Value, exact: bool = True) -> Problem:
        """The problem that returns these values; int8 ones dequantized, so that every step shows."""
        outputs = [self.builder.node(Dequantize(), v) if v.type.is_quantized else v for v in values]
        return Problem(self.name, self.builder.finish(*outputs), self.inputs, exact)


def awkward(random: np.random.Generator, shape: Shape) -> Array:
    """Normal values with saturating, infinite, zero and tied ones among them."""
    values = random.normal(size=shape).astype(np.float32)
    flat = values.reshape(-1)
    special = np.array([np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 0.5, 0.25, 1e-30], np.float32)
    places = random.integers(0, max(flat.size, 1), size=min(flat.size // 8, 64))
    flat[places] = random.choice(special, size=places.size)
    return values


def moderate(random: np.random.Generator, shape: Shape) -> Array:
    """Normal values."""
    return random.normal(size=shape).astype(np.float32)
