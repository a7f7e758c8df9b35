"""Every ONNX operator that can be imported, with the definitions its function was written for."""

from __future__ import annotations

import onnx

from qglow.importer import (
    conv,
    elementwise,
    functions,
    linear,
    logic,
    movement,
    normalization,
    pool,
    qlinear,
    quantize,
    ranking,
    reduce,
    resize,
    shape,
    softmax,
    transposed,
)
from qglow.importer.node import Refused, Rule

OLDEST_OPSET = 7

RULES: dict[str, Rule] = {
    name: rule
    for family in (
        conv,
        elementwise,
        functions,
        linear,
        logic,
        movement,
        normalization,
        pool,
        qlinear,
        quantize,
        ranking,
        reduce,
        resize,
        shape,
        softmax,
        transposed,
    )
    for name, rule in family.RULES.items()
}


CONTRIBUTED: dict[str, Rule] = {**qlinear.CONTRIBUTED, **quantize.CONTRIBUTED}
"""Operators of the domain com.microsoft, which onnxruntime's own tools write."""

REFUSED: dict[str, str] = {
    "ConvInteger": "sums without scales; QLinearConv, or DequantizeLinear around Conv, is supported",
    "DynamicQuantizeLinear": "ranges measured while the model runs; quantize it statically, from data",
    "MatMulInteger": "sums without scales; QLinearMatMul, or DequantizeLinear around MatMul, is supported",
}
"""Why operators of quantized models are not supported."""


def supported_operators() -> list[str]:
    """Names of the ONNX operators that can be imported."""
    return sorted(RULES)


def contributed_operators() -> list[str]:
    """Names of the operators of onnxruntime's domain, com.microsoft, that can be imported."""
    return sorted(CONTRIBUTED)


def newest_opset() -> int:
    """The newest operator set whose definitions the installed onnx knows."""
    return int(onnx.defs.onnx_opset_version())


def find_rule(domain: str, op_type: str, opset: int) -> Rule:
    """The rule for an operator. Raises Refused where there is none for this definition of it."""
    if domain == "com.microsoft" and op_type in CONTRIBUTED:
        return CONTRIBUTED[op_type]
    if domain not in ("", "ai.onnx") or op_type not in RULES:
        raise Refused(REFUSED.get(op_type, "the operator is not supported"))
    rule = RULES[op_type]
    try:
        since = int(onnx.defs.get_schema(op_type, opset, "").since_version)
    except onnx.defs.SchemaError:
        raise Refused(
            f"opset {opset} has no operator of this name; export the model for a newer one"
        ) from None
    if since > rule.newest:
        raise Refused(f"its definition of opset {since} is newer than {rule.newest}, the newest supported")
    return rule
