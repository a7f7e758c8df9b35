"""Matrix of operators and layers: what every layer does with every operator, side by side."""

from __future__ import annotations

from dataclasses import dataclass

from qglow.display.blocks import Paragraph, Section, table
from qglow.exporter.operators import EXPORTS
from qglow.graph.operator import (
    OPERATORS,
    KeepFloat,
    Operator,
    Table,
)
from qglow.graph.ops.quantize import Dequantize, QuantizationProfile, Quantize, Rescale
from qglow.graph.ops.shape import Shape
from qglow.graph.plugins import load_operator_plugins
from qglow.graph.traits import Traits
from qglow.importer.rules import supported_operators
from qglow.instructions.operation import OPERATIONS
from qglow.kernels.emit.kernel import FACTORIES
from qglow.kernels.selection import families as families
from qglow.lowering import lower as lower
from qglow.lowering.decompose import DECOMPOSITIONS
from qglow.lowering.rules import RULES
from qglow.report.policies import policy_text

CONVERSIONS: tuple[type[Operator], ...] = (Quantize, Dequantize, Rescale)
"""Written as QuantizeLinear and DequantizeLinear around what they convert, not by an export rule."""


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
    """Every declared operator, those of plugins among them, by name."""
    load_operator_plugins()
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
        Section("What passes ask", (table(("trait", "promised by"), _promises()),)),
        Section("Imported as other operators", (Paragraph(", ".join(rewritten)),)),
        Section("Instructions", (table(("instruction", "data-parallel", "kernel families>"), kernels),)),
    ]


def _promises() -> list[tuple[str, str]]:
    """Traits with the operators that declare another answer than the default, which promises nothing."""
    traits = [name for name in vars(Traits) if not name.startswith("_")]
    promised = {
        trait: [name for name, cls in sorted(OPERATORS.items()) if _declares(cls, trait)] for trait in traits
    }
    return [(trait, ", ".join(names)) for trait, names in promised.items() if names]


def _declares(cls: type[Operator], trait: str) -> bool:
    return bool(getattr(cls, trait) is not getattr(Traits, trait))


def _facets(cls: type[Operator], imported: bool) -> Facets:
    exported = cls in EXPORTS or cls in CONVERSIONS
    if cls is Shape:
        return Facets(cls.name, imported, policy_text(cls), exported, "folded: shapes are known", ())
    lowering = "decomposed" if cls in DECOMPOSITIONS else "instruction" if cls in RULES else ""
    return Facets(cls.name, imported, policy_text(cls), exported, lowering, _missing(cls, exported, lowering))


def _missing(cls: type[Operator], exported: bool, lowering: str) -> tuple[str, ...]:
    """Promises of the operator's policy that some layer does not keep, by name."""
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
