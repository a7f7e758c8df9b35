"""Every ONNX operator that can be imported, with the definitions its function was written for."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from qglow.graph.plugins import load_operator_plugins
from qglow.importer import (
    angles,
    attention,
    blocks,
    composed,
    conv,
    deformed,
    determinant,
    einsum,
    elementwise,
    experts,
    four_bit_floats,
    functions,
    fused_activations,
    fused_attention,
    generated,
    grouped_attention,
    integer_sums,
    linear,
    logic,
    measured_ranges,
    movement,
    normalization,
    optional,
    places,
    pool,
    qlinear,
    quantize,
    quantized_recurrent,
    quantized_transformers,
    ranking,
    recurrent,
    reduce,
    regions,
    resize,
    rotary,
    sampling,
    shape,
    softmax,
    spectrum,
    tabular,
    transformers,
    transposed,
    unpool,
)
from qglow.importer.node import CannotImport, ImportFunction, ImportRule

OLDEST_OPSET = 6

RULES: dict[str, ImportRule] = {
    name: rule
    for family in (
        angles,
        attention,
        composed,
        conv,
        deformed,
        determinant,
        einsum,
        elementwise,
        functions,
        generated,
        integer_sums,
        linear,
        logic,
        measured_ranges,
        movement,
        normalization,
        optional,
        places,
        pool,
        qlinear,
        quantize,
        ranking,
        recurrent,
        reduce,
        regions,
        resize,
        sampling,
        shape,
        softmax,
        spectrum,
        transposed,
        unpool,
    )
    for name, rule in family.RULES.items()
}


CONTRIBUTED: dict[str, ImportRule] = {
    **blocks.CONTRIBUTED,
    **experts.CONTRIBUTED,
    **four_bit_floats.CONTRIBUTED,
    **fused_activations.CONTRIBUTED,
    **fused_attention.CONTRIBUTED,
    **grouped_attention.CONTRIBUTED,
    **integer_sums.CONTRIBUTED,
    **normalization.CONTRIBUTED,
    **qlinear.CONTRIBUTED,
    **quantize.CONTRIBUTED,
    **quantized_recurrent.CONTRIBUTED,
    **quantized_transformers.CONTRIBUTED,
    **rotary.CONTRIBUTED,
    **transformers.CONTRIBUTED,
}
"""Operators of the domain com.microsoft, which onnxruntime's own tools write."""

DOMAINS: dict[str, dict[str, ImportRule]] = {
    "": RULES,
    "com.microsoft": CONTRIBUTED,
    "ai.onnx.ml": tabular.LEARNED,
    "ai.onnx.converters.tensorflow": transformers.CONVERTED,
}
"""The rules of each domain; ONNX's own is called "". `imports` adds to them."""


def supported_operators() -> list[str]:
    """Names of the ONNX operators that can be imported."""
    return sorted(RULES)


def contributed_operators() -> list[str]:
    """Names of the operators of onnxruntime's domain, com.microsoft, that can be imported."""
    return sorted(CONTRIBUTED)


def newest_opset() -> int:
    """The newest operator set whose definitions the installed onnx knows."""
    return int(onnx.defs.onnx_opset_version())


def imports(
    op_type: str,
    *,
    newest: int = 1,
    domain: str = "",
    reads_unsigned: bool = False,
    reads_halves: bool = False,
) -> Callable[[ImportFunction], ImportFunction]:
    """Decorator: the function imports an ONNX operator of this name and domain.

    See `ImportRule` for what the keywords promise; `newest` counts in ONNX's own domain only. Raises
    ValueError if the operator has a rule already.
    """

    def register(function: ImportFunction) -> ImportFunction:
        rules = DOMAINS.setdefault(domain, {})
        if op_type in rules:
            raise ValueError(f"{domain or 'ai.onnx'}.{op_type} has two import rules")
        rules[op_type] = ImportRule(function, newest, reads_unsigned, reads_halves)
        return function

    return register


def find_rule(domain: str, op_type: str, opset: int) -> ImportRule:
    """The rule for an operator, also of a plugin.

    Raises CannotImport where there is none for this definition, UsageError for a plugin that is broken.
    """
    domain = "" if domain == "ai.onnx" else domain
    if op_type not in DOMAINS.get(domain, {}):
        load_operator_plugins()
    rule = DOMAINS.get(domain, {}).get(op_type)
    if rule is None:
        raise CannotImport("the operator is not supported")
    if domain:
        return rule
    try:
        since = int(onnx.defs.get_schema(op_type, opset, "").since_version)
    except onnx.defs.SchemaError:
        raise CannotImport(
            f"opset {opset} has no operator of this name; export the model for a newer one"
        ) from None
    if since > rule.newest:
        newer = f"its definition of opset {since} is newer than {rule.newest}"
        raise CannotImport(f"{newer}, the newest supported")
    return rule
