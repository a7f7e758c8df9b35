"""Running sums along an axis: with one element at a time if it is the last, else with vectors across it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.instructions.ops.reduce import RunningSum
from qglow.instructions.program import Instruction
from qglow.kernels.emit.builder import Value, scalar, vec
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.target import VectorTarget

LANES = 16


@kernel
@dataclass(frozen=True)
class SumOnward(Kernel):
    """Sums of columns side by side: an addition waits for the one before it, those of 16 columns for none."""

    name: ClassVar[str] = "sum-onward"
    uses_scales: ClassVar[bool] = False

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cycles by the number of vectors."""
        outer, extent, inner = instruction.operand("src").type.shape
        return outer * extent * -(-inner // LANES) * target.model.loops.reduced_vector

    def emit(self, site: Site) -> None:
        """Emit loops over the outer axes, which threads share, and over blocks of 16 columns."""
        e, dest, src = site.e, site["dest"], site["src"]
        outer, extent, inner = src.shape
        size, whole = src.element_bytes, inner // LANES * LANES
        if not src.type.size:
            return
        with e.loop(*e.share(outer), name="outer") as index:
            move = e.scaled(index, extent * inner * size)
            start, to = e.offset(src.pointer, move), e.offset(dest.pointer, move)
            for first, last, count in ((0, whole, LANES), (whole, inner, inner - whole)):
                if first == last:
                    continue
                with e.loop(first, last, LANES, "inner") as at:
                    move = e.scaled(at, size)
                    self._columns(site, e.offset(start, move), e.offset(to, move), count)

    def _columns(self, site: Site, start: Value, to: Value, count: int) -> None:
        """Emit the sums of `count` columns, row by row."""
        e, src, operation = site.e, site["src"], site.operation
        _, extent, inner = src.shape
        step = inner * src.element_bytes
        lanes = LANES if count > 1 else 1
        # Adding to -0.0 keeps the sign of a zero, so that the first sum is the first element.
        neutral = (0.0 if operation.exclusive else -0.0) if src.is_float else 0
        add = e.b.fadd if src.is_float else e.b.add
        total = scalar(vec(src.element, lanes), neutral)
        with e.carrying_loop(0, extent, [total], name="place") as carry:
            place = e.scaled(carry.index, step)
            if operation.reverse:
                place = e.plus((extent - 1) * step, e.scaled(carry.index, -step))
            total = carry.values[0]
            element = e.load_lanes(e.offset(start, place), src.element, lanes, count)
            following = add(total, element)
            e.store_lanes(total if operation.exclusive else following, e.offset(to, place), count)
            carry.next([following])


@candidates_for(RunningSum)
def running_sum_candidates(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the only kernel."""
    return [SumOnward()]
