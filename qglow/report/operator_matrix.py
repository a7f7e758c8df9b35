"""What every layer does with every operator: the tables of the layers, side by side."""

from __future__ import annotations

from dataclasses import dataclass

from qglow.exporter.operators import EXPORTS
from qglow.graph.operator import (
    OPERATORS,
    Accumulate,
    KeepFloat,
    Operator,
    Products,
    ReadsIntegers,
    Rescaled,
    SameAs,
    Table,
    Unify,
)
from qglow.graph.ops.quantize import Dequantize, QuantizationProfile, Quantize, Rescale
from qglow.graph.ops.shape import Shape
from qglow.importer.rules import supported_operators
from qglow.instructions.operation import OPERATIONS
from qglow.kernels import families as families
from qglow.kernels.kernel import FACTORIES
from qglow.lowering import lower as lower
from qglow.lowering.decompose import DECOMPOSITIONS
from qglow.lowering.rules import RULES
from qglow.report.document import Paragraph, Section, table

CONVERSIONS: tuple[type[Operator], ...] = (Quantize, Dequantize, Rescale)
"""Written as QuantizeLinear and DequantizeLinear around what they convert, not by an export rule."""

_WORDS: dict[type, str] = {
    Unify: "shared parameters where it costs little",
    Rescaled: "own parameters",
    Products: "accumulates both operands",
    ReadsIntegers: "reads int8 as it is",
    Table: "table",
}


@dataclass(frozen=True, slots=True)
class Facets:
    """One operator of graphs.

    imported: whether an ONNX operator of its name is read; others are made by importer or passes.
    policy: what quantization does with it. lowering: "instruction" where a rule emits instructions,
    "decomposed" where it becomes simpler operators first, "" where it cannot be compiled.
    """

    name: str
    imported: bool
    policy: str
    exported: bool
    lowering: str
    missing: tuple[str, ...]


def operator_matrix() -> tuple[Facets, ...]:
    """Every declared operator, by name."""
    imported = set(supported_operators())
    return tuple(_facets(cls, cls.name in imported) for _, cls in sorted(OPERATORS.items()))


def instructions_without_kernel() -> tuple[str, ...]:
    """Instructions that touch memory and that no kernel executes."""
    working = (name for name, operation in sorted(OPERATIONS.items()) if operation.touches_memory)
    return tuple(name for name in working if name not in FACTORIES)


def operator_sections() -> list[Section]:
    """The matrix, the ONNX operators that become others, and what executes instructions."""
    rows = [
        (f.name, _mark(f.imported), f.policy, _mark(f.exported), f.lowering or "none", ", ".join(f.missing))
        for f in operator_matrix()
    ]
    titles = ("operator", "imported", "under quantization", "exported", "lowering", "missing")
    rewritten = [name for name in supported_operators() if name not in OPERATORS]
    kernels = [
        (name, _mark(operation.data_parallel), str(len(FACTORIES.get(name, ()))))
        for name, operation in sorted(OPERATIONS.items())
        if operation.touches_memory
    ]
    return [
        Section("Operators", (table(titles, rows),)),
        Section("Imported as other operators", (Paragraph(", ".join(rewritten)),)),
        Section("Instructions", (table(("instruction", "data-parallel", "kernel families>"), kernels),)),
    ]


def _facets(cls: type[Operator], imported: bool) -> Facets:
    exported = cls in EXPORTS or cls in CONVERSIONS
    if cls is Shape:
        return Facets(cls.name, imported, policy_text(cls), exported, "folded: shapes are known", ())
    lowering = "decomposed" if cls in DECOMPOSITIONS else "instruction" if cls in RULES else ""
    return Facets(cls.name, imported, policy_text(cls), exported, lowering, _missing(cls, exported, lowering))


def policy_text(cls: type[Operator]) -> str:
    """What quantization does with an operator, in words."""
    policy = cls.policy
    if isinstance(policy, KeepFloat):
        return f"float: {policy.reason}"
    if isinstance(policy, Accumulate):
        return f"accumulates {policy.x} x {policy.w}"
    if isinstance(policy, SameAs):
        return f"same parameters as {cls.operands[policy.operand].rstrip('?*')}"
    fixed = "" if cls.fixed is None else ", range known"
    return _WORDS.get(type(policy), type(policy).__name__) + fixed


def _missing(cls: type[Operator], exported: bool, lowering: str) -> tuple[str, ...]:
    """What the policy promises and some layer does not keep."""
    if cls is QuantizationProfile:
        return ()  # stands in graphs that are profiled only
    missing = [] if lowering else ["lowering"]
    if isinstance(cls.policy, KeepFloat):
        return tuple(missing)
    if not exported:
        missing.append("export")
    if isinstance(cls.policy, Table) and cls.reference64 is Operator.reference64:
        missing.append("reference of the table")
    return tuple(missing)


def _mark(present: bool) -> str:
    return "yes" if present else ""
