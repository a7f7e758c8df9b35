"""Rich operators written as simpler ones, where the back end does not want them whole.

The last node of a decomposition produces the very value that the operator produced, so that
profiled statistics and names keep their identity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from qglow.core.errors import UnsupportedError
from qglow.core.types import Array
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Clip, Relu
from qglow.graph.ops.linear import Gemm, MatMul
from qglow.graph.ops.normalization import Affine, BatchNormalization
from qglow.graph.ops.pool import AveragePool, GlobalAveragePool
from qglow.graph.ops.resize import ResizeNearest
from qglow.graph.ops.shape import Gather, Identity, Pad, Reshape, Slice
from qglow.lowering.backend import Backend
from qglow.numerics.affine import fold_statistics


@dataclass
class Parts:
    """The nodes that a node becomes, in order. Data movement keeps the parameters of its operand."""

    node: Node
    graph: Graph
    nodes: list[Node] = field(default_factory=list)

    def add(self, part: str, operator: Operator, *inputs: Value) -> Value:
        """A node before the last one; its result."""
        (kind,) = operator.infer([value.type for value in inputs])
        quantization = inputs[0].type.quantization
        if quantization is not None:
            kind = kind.quantized(quantization)
        output = self.node.output.name
        result = Value(self.graph.unique_name(f"{output}.{part}"), kind)
        name = f"{self.node.name}.{part}"
        self.nodes.append(Node(name, operator, inputs, [result]))
        return result

    def finish(self, operator: Operator, *inputs: Value) -> list[Node]:
        """All nodes, the last of which gives the value that the node gave."""
        self.nodes.append(Node(self.node.name, operator, inputs, self.node.outputs))
        return self.nodes


Decomposition = Callable[[Node, Graph], list[Node]]


def decompose(graph: Graph, backend: Backend) -> None:
    """Replace, in place, every operator that has a decomposition and is not kept whole.

    Raises UnsupportedError where an operator cannot be decomposed as it is used.
    """
    for node in list(graph.nodes):
        rule = DECOMPOSITIONS.get(type(node.operator))
        if rule is None or backend.wants_whole(node.operator):
            continue
        parts = rule(node, graph)
        index = graph.nodes.index(node)
        node.inputs = ()
        graph.nodes[index : index + 1] = parts


def _global_average(node: Node, graph: Graph) -> list[Node]:
    x = node.inputs[0]
    assert x is not None
    height, width = x.type.shape[2:]
    pool = AveragePool(kernel=(height, width), strides=(1, 1), pads=(0, 0, 0, 0))
    return [Node(node.name, pool, [x], node.outputs)]


def _relu(node: Node, graph: Graph) -> list[Node]:
    return [Node(node.name, Clip(lo=0.0), node.inputs, node.outputs)]


def _matmul(node: Node, graph: Graph) -> list[Node]:
    a, b = node.inputs
    assert a is not None and b is not None
    if len(a.type.shape) == len(b.type.shape) == 2 and a.type.is_float:
        return [Node(node.name, Gemm(), [a, b, None], node.outputs)]
    if min(len(a.type.shape), len(b.type.shape)) >= 2:
        return [Node(node.name, MatMul(), [a, b], node.outputs)]
    return _vector_product(node, graph, a, b)


def _vector_product(node: Node, graph: Graph, a: Value, b: Value) -> list[Node]:
    """A vector on the left is a row, on the right a column; the axis of one element is taken away after."""
    parts = Parts(node, graph)
    if len(a.type.shape) == 1:
        a = parts.add("row", Reshape(shape=(1, *a.type.shape)), a)
    if len(b.type.shape) == 1:
        b = parts.add("column", Reshape(shape=(*b.type.shape, 1)), b)
    product = parts.add("product", MatMul(), a, b)
    # Of int8, the sums are rescaled before the axis goes.
    product.type = node.output.type.with_shape(product.type.shape)
    return parts.finish(Reshape(shape=node.output.type.shape), product)


def _pad(node: Node, graph: Graph) -> list[Node]:
    """Modes that repeat elements are gathers."""
    operator, x = node.operator, node.inputs[0]
    assert isinstance(operator, Pad) and x is not None
    if operator.mode == "constant":
        return [Node(node.name, operator, [x], node.outputs)]
    return _gathers(node, graph, x, operator.indices(x.type.shape))


def _resize_nearest(node: Node, graph: Graph) -> list[Node]:
    operator, x = node.operator, node.inputs[0]
    assert isinstance(operator, ResizeNearest) and x is not None
    return _gathers(node, graph, x, operator.indices(x.type.shape))


def _gathers(node: Node, graph: Graph, x: Value, steps: list[tuple[int, Array]]) -> list[Node]:
    """x with elements chosen along one axis after the other."""
    parts = Parts(node, graph)
    for axis, indices in steps[:-1]:
        chosen = constant(graph.unique_name(f"{node.name}.indices{axis}"), indices.astype(np.int32))
        x = parts.add(f"axis{axis}", Gather(axis=axis), x, chosen)
    if not steps:
        return parts.finish(Identity(), x)
    axis, indices = steps[-1]
    chosen = constant(graph.unique_name(f"{node.name}.indices{axis}"), indices.astype(np.int32))
    return parts.finish(Gather(axis=axis), x, chosen)


def _gather(node: Node, graph: Graph) -> list[Node]:
    """A vector of one known index is a slice."""
    operator, (x, indices) = node.operator, node.inputs
    assert isinstance(operator, Gather) and x is not None and indices is not None
    if indices.data is None or indices.data.shape != (1,):
        return [Node(node.name, operator, [x, indices], node.outputs)]
    axis, shape = operator.axis % len(x.type.shape), x.type.shape
    index = int(indices.data[0])
    if not -shape[axis] <= index < shape[axis]:
        raise UnsupportedError(f"node '{node.name}' (Gather): index {index} is out of range for {x.type}")
    starts, ends = [0] * len(shape), list(shape)
    starts[axis], ends[axis] = index % shape[axis], index % shape[axis] + 1
    return [Node(node.name, Slice(tuple(starts), tuple(ends), (1,) * len(shape)), [x], node.outputs)]


def _batch_normalization(node: Node, graph: Graph) -> list[Node]:
    x, *statistics = node.inputs
    arrays = [None if value is None else value.data for value in statistics]
    if x is None or any(array is None for array in arrays):
        raise UnsupportedError(f"node '{node.name}' (BatchNormalization): statistics must be constant")
    operator = node.operator
    assert isinstance(operator, BatchNormalization)
    scale, bias, mean, variance = (np.asarray(array) for array in arrays)
    r, t = fold_statistics(scale, bias, mean, variance, operator.epsilon)
    factors = [constant(f"{node.name}.scale", r), constant(f"{node.name}.shift", t)]
    return [Node(node.name, Affine(), [x, *factors], node.outputs)]


DECOMPOSITIONS: dict[type[Operator], Decomposition] = {
    GlobalAveragePool: _global_average,
    Relu: _relu,
    MatMul: _matmul,
    Pad: _pad,
    ResizeNearest: _resize_nearest,
    Gather: _gather,
    BatchNormalization: _batch_normalization,
}
