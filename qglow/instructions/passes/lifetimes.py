"""Shorter lifetimes: allocations move down to the first use, deallocations up to the last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Pass, PassLog
from qglow.instructions.ops.memory import AllocActivation, DeallocActivation, TensorView
from qglow.instructions.program import Program


@dataclass(frozen=True)
class SinkAllocations(Pass[Program]):
    """Every allocation and tensorview stands right before the first instruction that needs it."""

    name: ClassVar[str] = "sink-allocations"

    def run(self, ir: Program, log: PassLog) -> None:
        """From the last declaration to the first, so that views have moved before their bases."""
        for instruction in reversed(list(ir.code)):
            if log.exhausted or not isinstance(instruction.operation, AllocActivation | TensorView):
                continue
            buffer = instruction.buffers[0]
            index = ir.code.index(instruction)
            later = ir.code[index + 1 :]
            first = next((n for n, i in enumerate(later) if any(b is buffer for b in i.buffers)), 0)
            if first == 0 or all(_declares(i) for i in later[:first]):
                continue
            ir.code.insert(index + first, ir.code.pop(index))
            log.applied(f"%{instruction.name}", f"moved down by {first}")


def _declares(instruction: object) -> bool:
    operation = getattr(instruction, "operation", None)
    return isinstance(operation, AllocActivation | TensorView)


@dataclass(frozen=True)
class HoistDeallocations(Pass[Program]):
    """Every deallocation stands right after the last instruction that needs the memory."""

    name: ClassVar[str] = "hoist-deallocations"

    def run(self, ir: Program, log: PassLog) -> None:
        """Each in order."""
        for instruction in list(ir.code):
            if log.exhausted or not isinstance(instruction.operation, DeallocActivation):
                continue
            root = instruction.buffers[0]
            index = ir.code.index(instruction)
            last = index - 1
            while last >= 0 and not any(b is not None and b.root is root for b in ir.code[last].buffers):
                last -= 1
            between = ir.code[last + 1 : index]
            if all(isinstance(i.operation, DeallocActivation) for i in between):
                continue
            ir.code.insert(last + 1, ir.code.pop(index))
            log.applied(f"%{instruction.name}", f"moved up by {index - last - 1}")
