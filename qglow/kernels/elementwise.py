"""One loop for every data-parallel operation: load vectors, evaluate, store."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qglow.core.types import Array
from qglow.instructions.ops.elementwise import Affine
from qglow.instructions.ops.quantize import Lookup
from qglow.instructions.program import Instruction
from qglow.kernels.builder import Emitter, Value
from qglow.kernels.expressions import EXPRESSIONS, Point
from qglow.kernels.isa import Isa
from qglow.kernels.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.operand import Memory
from qglow.kernels.sweep import sweep

LANES = 16
TABLE_LANES = 64
CYCLES_A_VECTOR = 6.0


@kernel
@dataclass(frozen=True)
class Elementwise(Kernel):
    """Vectors of `lanes` elements, whatever the register size: LLVM splits them."""

    name: ClassVar[str] = "elementwise"

    lanes: int = LANES

    def constants(self, instruction: Instruction, isa: Isa) -> dict[str, Array]:
        """A table with the bias of the results added; its index is the biased input."""
        if not isinstance(instruction.operation, Lookup):
            return {}
        data = instruction.operand("table").data
        assert data is not None
        return {"table": (data.astype(np.int16) + isa.activation_bias).astype(np.uint8)}

    def cost(self, instruction: Instruction, isa: Isa) -> float:
        """Cycles by the number of vectors."""
        return instruction.operand("dest").type.size / isa.float_lanes * CYCLES_A_VECTOR

    def emit(self, site: Site) -> None:
        """A sweep over dest and everything that is read."""
        memories = vector_operands(site)
        names = list(memories)

        def body(pointers: list[Value], count: int | None) -> None:
            values = load_values(site.e, memories, dict(zip(names, pointers, strict=True)), self.lanes, count)
            point = Point(site.e, site.operation, memories, values, site.constants, self.lanes)
            result = EXPRESSIONS[type(site.operation)](point)
            site.e.store_lanes(result, pointers[names.index("dest")], count)

        sweep(site.e, list(memories.values()), self.lanes, body)


def vector_operands(site: Site) -> dict[str, Memory]:
    """The operands of dest's shape; those of one value a channel are spread over it."""
    shape = site["dest"].shape
    spread = {}
    for name, memory in site.operands.items():
        if memory.shape == shape and not (isinstance(site.operation, Affine) and name in ("scale", "shift")):
            spread[name] = memory
            continue
        strides = (0,) * (len(shape) - 1) + (1,)
        spread[name] = replace(memory, type=memory.type.with_shape(shape), strides=strides)
    return spread


def load_values(
    e: Emitter, memories: dict[str, Memory], pointers: dict[str, Value], lanes: int, count: int | None
) -> dict[str, Value]:
    """Vectors of all operands but dest, by name."""
    return {
        name: e.load_lanes(pointers[name], memory.element, lanes, count)
        for name, memory in memories.items()
        if name != "dest"
    }


@candidates_for(*EXPRESSIONS)
def elementwise_candidates(instruction: Instruction, isa: Isa) -> list[Kernel]:
    """The one loop; wider vectors for tables, whose permutes take whole registers."""
    if isinstance(instruction.operation, Lookup):
        table = instruction.operand("table")
        return [Elementwise(TABLE_LANES)] if table.data is not None else []
    return [Elementwise()]
