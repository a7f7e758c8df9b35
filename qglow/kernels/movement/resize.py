"""Resampling along one axis: weighted sums of the slices behind that axis, in vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.instructions.ops.resize import Interpolate
from qglow.instructions.program import Instruction
from qglow.kernels.arithmetic.requantize import emit_dequantize, emit_quantize, integer_range
from qglow.kernels.emit.builder import F32, I32, I64, Index, Value
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.operand import contiguous_runs
from qglow.kernels.emit.sweep import outer_loops, sweep_run
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.movement.gather import along_axis, before_axis, behind_axis


@kernel
@dataclass(frozen=True)
class InterpolateRuns(Kernel):
    """Interpolation that computes, for every position along the axis, all elements behind it.

    Indices and weights depend on the position only, so they are loaded once for all of these elements.
    """

    name: ClassVar[str] = "interpolate"
    limits_live: ClassVar[bool] = True

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cost of a load and a multiplication for each tap and vector."""
        taps = instruction.operand("indices").type.shape[1]
        vectors = instruction.operand("dest").type.size / target.float_lanes
        return vectors * target.model.movement.resized_vector * taps

    def emit(self, site: Site) -> None:
        """Emit loops over the axes before the axis and along it, around the sums of `_Row`."""
        e, dest, src, axis = site.e, site["dest"], site["src"], site.operation.axis
        if 0 in dest.shape:
            return
        with before_axis(e, dest, src, axis) as (to, start), along_axis(e, dest, axis) as i:
            place = e.offset(to, e.scaled(i, dest.strides[axis] * dest.element_bytes))
            _Row(site, i, start).emit(place)


@dataclass(frozen=True)
class _Row:
    """Results at position `number` along the axis; `start` is the address of position 0 in src."""

    site: Site
    number: Index
    start: Value

    @property
    def lanes(self) -> int:
        """Number of elements computed at a time."""
        return self.site.target.loop_lanes

    def emit(self, place: Value) -> None:
        """Emit the weighted sums, which are stored from `place` on."""
        site, e = self.site, self.site.e
        dest, axis = behind_axis(site["dest"], site.operation.axis, place), site.operation.axis
        taps = range(site["indices"].shape[1])
        sources = [behind_axis(site["src"], axis, self._source(k)) for k in taps]
        weights = [e.splat(e.load(self._entry("weights", k), F32), self.lanes) for k in taps]
        offset = self._offset()
        memories = [dest, *sources]
        sizes = [memory.element_bytes for memory in memories]
        runs = contiguous_runs(dest.shape, [memory.strides for memory in memories], sizes)

        def body(pointers: list[Value], count: int | None) -> None:
            loaded = [e.load_lanes(p, site["src"].element, self.lanes, count) for p in pointers[1:]]
            terms = [e.b.fmul(self._real(x), w) for x, w in zip(loaded, weights, strict=True)]
            # Taps ascend and the offset comes last, as in numerics: another order would round to other bits.
            total = terms[0]
            for term in [*terms[1:], *offset]:
                total = e.b.fadd(total, term)
            e.store_lanes(self._stored(total), pointers[0], count)

        with outer_loops(e, [memory.pointer for memory in memories], runs.outer) as pointers:
            sweep_run(e, pointers, sizes, runs.length, self.lanes, body)

    def _entry(self, operand: str, tap: int) -> Value:
        """Address of this row's entry for a tap."""
        e, taps = self.site.e, self.site["indices"].shape[1]
        row = e.offset(self.site[operand].pointer, e.scaled(self.number, 4 * taps))
        return e.offset(row, 4 * tap)

    def _source(self, tap: int) -> Value:
        e, src = self.site.e, self.site["src"]
        index = e.b.sext(e.load(self._entry("indices", tap), I32), I64)
        return e.offset(
            self.start, e.scaled(index, src.strides[self.site.operation.axis] * src.element_bytes)
        )

    def _offset(self) -> list[Value]:
        if "offsets" not in self.site.operands:
            return []
        e = self.site.e
        place = e.offset(self.site["offsets"].pointer, e.scaled(self.number, 4))
        return [e.splat(e.load(place, F32), self.lanes)]

    def _real(self, loaded: Value) -> Value:
        src = self.site["src"]
        return loaded if src.is_float else emit_dequantize(self.site.e, loaded, src.zero_point, src.scale)

    def _stored(self, total: Value) -> Value:
        dest = self.site["dest"]
        if dest.is_float:
            return total
        return emit_quantize(self.site.e, total, dest.scale, integer_range(dest.type, dest.bias))


@candidates_for(Interpolate)
def interpolate_candidates(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the kernel for any layout if indices are known, and so in range; else none."""
    return [InterpolateRuns()] if instruction.operand("indices").data is not None else []
