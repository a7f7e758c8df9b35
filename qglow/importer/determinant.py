"""Import of determinants of small matrices. https://onnx.ai/onnx/operators/onnx__Det.html"""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np

from qglow.graph.ops.elementwise import Mul
from qglow.graph.ops.movement import Gather
from qglow.graph.ops.reduce import ReduceProd, ReduceSum
from qglow.graph.ops.shape import Reshape
from qglow.importer.node import ImportNode, ImportRule

MOST_ROWS = 4
"""Rows of a matrix: the sum has a product for every permutation of them."""


def import_det(node: ImportNode) -> None:
    """Import Det of the last two axes: the signed sum of the products along all permutations."""
    x, shape = node.value(0), node.kind().shape
    node.require(x.type.is_float, f"input is {x.type}; only float is supported")
    node.require(len(shape) >= 2 and shape[-1] == shape[-2], f"{x.type} holds no square matrices")
    rows = shape[-1]
    node.require(0 < rows <= MOST_ROWS, f"matrices of {rows} rows; 1 to {MOST_ROWS} are supported")
    orders = np.array(list(permutations(range(rows))), np.int64)
    turned = [sum(order[i] > order[j] for i, j in combinations(range(rows), 2)) for order in orders]
    places = node.part_constant("places", orders + np.arange(rows) * rows)
    signs = node.part_constant("signs", np.array([(-1.0) ** count for count in turned], np.float32))
    flat = node.emit(Reshape(shape=(*shape[:-2], rows * rows)), x, part="flat")
    terms = node.emit(Gather(axis=len(shape) - 2), flat, places, part="terms")
    products = node.emit(ReduceProd((len(shape) - 1,), False), terms, part="products")
    signed = node.emit(Mul(), products, signs, part="signed")
    node.emit(ReduceSum((len(shape) - 2,), False), signed)


RULES: dict[str, ImportRule] = {"Det": ImportRule(import_det, newest=22)}
