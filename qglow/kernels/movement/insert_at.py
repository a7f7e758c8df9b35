"""Writing of a slice whose start is known at run time alone, as copies of runs of bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.instructions.ops.movement import InsertAt
from qglow.instructions.program import Instruction
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.movement.copy import emit_copy
from qglow.kernels.movement.gather import before_axis, behind_axis, runs_cost


@kernel
@dataclass(frozen=True)
class InsertRuns(Kernel):
    """A copy, for every place along the axis, of all elements behind it at once."""

    name: ClassVar[str] = "insert-at"

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cost of moving each register of bytes, plus an overhead for each run."""
        operation = instruction.operation
        assert isinstance(operation, InsertAt)
        return runs_cost(instruction.operand("src").type, operation.axis, target)

    def emit(self, site: Site) -> None:
        """Emit loops over the axes before the axis and along it; the start is read at run time."""
        e, dest, src, axis = site.e, site["dest"], site["src"], site.operation.axis
        if 0 in src.shape:
            return
        # The start is a caller's data: whatever it is, nothing outside of dest may be written.
        given = e.load(site["first"].pointer, site["first"].element)
        first = e.maximum(e.minimum(given, dest.shape[axis] - src.shape[axis]), 0)
        step, own = dest.strides[axis] * dest.element_bytes, src.strides[axis] * src.element_bytes
        share = e.share(src.shape[axis])
        with before_axis(e, dest, src, axis) as (to, start), e.loop(*share, name="place") as i:
            place = e.offset(e.offset(to, e.scaled(first, step)), e.scaled(i, step))
            begin = e.offset(start, e.scaled(i, own))
            emit_copy(e, behind_axis(dest, axis, place), behind_axis(src, axis, begin))


@candidates_for(InsertAt)
def insert_at_candidates(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the one kernel, which works for any layout."""
    return [InsertRuns()]
