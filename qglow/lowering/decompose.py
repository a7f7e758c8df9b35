"""Rich operators written as simpler ones, where the back end does not want them whole.

The last node of a decomposition produces the very value that the operator produced, so that
profiled statistics and names keep their identity.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qglow.core.errors import UnsupportedError
from qglow.graph.graph import Graph, Node, constant
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Clip, Relu
from qglow.graph.ops.linear import Gemm, MatMul
from qglow.graph.ops.normalization import Affine, BatchNormalization
from qglow.graph.ops.pool import AveragePool, GlobalAveragePool
from qglow.lowering.backend import Backend
from qglow.numerics.affine import fold_statistics

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
    if len(a.type.shape) != 2 or len(b.type.shape) != 2:
        raise UnsupportedError(
            f"node '{node.name}' (MatMul of {a.type} and {b.type}): only matrices are supported"
        )
    return [Node(node.name, Gemm(), [a, b, None], node.outputs)]


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
    BatchNormalization: _batch_normalization,
}
