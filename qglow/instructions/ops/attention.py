"""Attention: scores, masks, shares and the mean of values as one instruction (rule 13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.types import ElementType
from qglow.instructions.operation import (
    Arrays,
    Operand,
    Operation,
    Types,
    out,
    read,
    register,
    require,
    scratch,
)
from qglow.instructions.ops.rules import (
    INFINITY,
    parameters_of,
    require_broadcast,
    require_float,
    require_int8,
    require_shape,
)
from qglow.numerics.attention import ScoreMasks, ScoreSteps, attention


@register
@dataclass(frozen=True)
class Attention(Operation):
    """dest[..., M, E] = softmax(queries[..., M, D] @ keys[..., T, D]^T, after steps) @ values[..., T, E].

    Steps are a factor (or a divisor), then `addend` and the choice of `otherwise` where `condition` is false
    (true if it `hides`), in this order or the other. `shared` stacks of queries in a row read one stack of
    keys and values. live: which places of keys take part, the first ones. Bits are those of the single
    operations: chains of fused multiply-adds over ascending places, and softmax with its order of sums.
    Queries and keys are both float, or both int8: their products are then exact int32 sums times s_q * s_k.
    """

    opcode: ClassVar[str] = "attention"
    signature: ClassVar[tuple[Operand, ...]] = (
        out(),
        read("queries"),
        read("keys"),
        read("values"),
        read("addend", optional=True),
        read("condition", optional=True),
        read("live", optional=True),
        scratch(),
    )

    shared: int = 1
    factor: float = 1.0
    divides: bool = False
    otherwise: float = -INFINITY
    hides: bool = False
    chooses_first: bool = False
    masked_to_zero: bool = False

    @property
    def steps(self) -> ScoreSteps:
        """Steps from products to shares."""
        return ScoreSteps(
            self.factor, self.divides, self.otherwise, self.hides, self.chooses_first, self.masked_to_zero
        )

    def verify(self, types: Types) -> None:
        """Stacks of matrices that fit; floats but for int8 scores, the condition and the live places."""
        require_float(types, "dest", "values", "addend")
        (require_float if types["queries"].is_float else require_int8)(types, "queries", "keys")
        queries, keys, values = (types[name].shape for name in ("queries", "keys", "values"))
        require(len(queries) >= 3, f"queries {queries} are no stack of matrices")
        require(self.shared > 0, f"{self.shared} stacks of queries share one of keys")
        (*leading, rows, depth), (*_, count, _) = queries, keys
        stacks = (*keys[:-3], keys[-3] * self.shared) if len(keys) == len(queries) else None
        require(stacks == tuple(leading), f"keys {keys} do not fit queries {queries}")
        require_shape(types, "keys", (*keys[:-2], count, depth), "the depth of queries")
        require_shape(types, "values", (*keys[:-2], count, *values[-1:]), "the places of keys")
        require_shape(types, "dest", (*leading, rows, *values[-1:]), "rows of queries, depth of values")
        for name in (name for name in ("addend", "condition") if name in types):
            require_broadcast(types, name, (*leading, rows, count))
            require(types[name].shape[-1] == count, f"{name} repeats along keys")
        for name in ("condition", "live"):
            fits = name not in types or types[name].element is ElementType.BOOL
            require(fits, f"{name} is no bool")
        require_shape(types, "live", (count,), "one for each place of keys")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.attention. Float sums have numpy's order: compiled code keeps a tolerance."""
        queries, keys, values = (arrays[name] for name in ("queries", "keys", "values"))
        masks = ScoreMasks(*(arrays.get(name) for name in ("addend", "condition", "live")))
        parameters = None
        if not types["queries"].is_float:
            parameters = parameters_of(types["queries"]), parameters_of(types["keys"])
        arrays["dest"][...] = attention(queries, keys, values, masks, self.shared, self.steps, parameters)
