"""Import of convolutions and products that onnxruntime's optimizer joined with a function behind them.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md FusedConv, FusedGemm
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qglow.graph.graph import Value
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Add, Clip, Relu
from qglow.graph.ops.functions import HardSigmoid, LeakyRelu, Sigmoid, Tanh
from qglow.importer.conv import import_conv
from qglow.importer.linear import import_gemm
from qglow.importer.node import ImportNode, ImportRule

FUNCTIONS: dict[str, tuple[int, Callable[..., Operator]]] = {
    "Clip": (2, Clip),
    "HardSigmoid": (2, HardSigmoid),
    "LeakyRelu": (1, LeakyRelu),
    "Relu": (0, Relu),
    "Sigmoid": (0, Sigmoid),
    "Tanh": (0, Tanh),
}
"""Functions by their names: how many numbers each has, and the operator that takes them in this order."""


def import_fused_conv(node: ImportNode) -> None:
    """Import FusedConv: a convolution, the sum with a fourth input, and a function."""
    numbers = node.numbers("activation_params")
    own = ("activation", "activation_params")
    total = node.emit_by(import_conv, _plain_name(node), node.inputs[:3], "convolved", own)
    if node.has_input(3):
        total = node.emit(Add(), total, node.value(3), part="sum")
    _emit_function(node, total, numbers)


def import_fused_gemm(node: ImportNode) -> None:
    """Import FusedGemm: a product and a function of at most three numbers."""
    names = [f"activation_{name}" for name in ("alpha", "beta", "gamma")]
    numbers = [node.number(name, 0.0) for name in names]
    total = node.emit_by(import_gemm, _plain_name(node), node.inputs[:3], "product", ("activation", *names))
    _emit_function(node, total, numbers)


def _plain_name(node: ImportNode) -> str:
    """Name of the operator without a function."""
    return node.proto.op_type.removeprefix("Fused")


def _emit_function(node: ImportNode, x: Value, numbers: Sequence[float]) -> None:
    name = node.string("activation", "")
    node.require(name in FUNCTIONS, f"activation is '{name}'; supported are {', '.join(FUNCTIONS)}")
    count, operator = FUNCTIONS[name]
    node.require(len(numbers) >= count, f"{name} has {len(numbers)} numbers; it takes {count}")
    node.emit(operator(*numbers[:count]), x)


CONTRIBUTED: dict[str, ImportRule] = {
    "FusedConv": ImportRule(import_fused_conv, newest=1),
    "FusedGemm": ImportRule(import_fused_gemm, newest=1),
}
"""Operators of onnxruntime's own domain, com.microsoft."""
