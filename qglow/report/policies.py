"""Quantization policies of operators, in words."""

from __future__ import annotations

from qglow.graph.operator import (
    Accumulate,
    KeepFloat,
    Operator,
    Products,
    ReadsIntegers,
    Recur,
    Rescaled,
    SameAs,
    Table,
    Unify,
)

_WORDS: dict[type, str] = {
    Unify: "shared parameters where it costs little",
    Rescaled: "own parameters",
    Products: "accumulates both operands",
    ReadsIntegers: "reads int8 as it is",
    Table: "table",
}


def policy_text(cls: type[Operator]) -> str:
    """Describe in words what quantization does with an operator."""
    policy = cls.policy
    if isinstance(policy, KeepFloat):
        return f"float: {policy.reason}"
    if isinstance(policy, Accumulate):
        return f"accumulates {policy.x} x {policy.w}"
    if isinstance(policy, Recur):
        return f"accumulates its states x {policy.w}"
    if isinstance(policy, SameAs):
        return f"same parameters as {cls.operands[policy.operand].rstrip('?*')}"
    fixed = "" if cls.fixed is None else ", range known"
    return _WORDS.get(type(policy), type(policy).__name__) + fixed
