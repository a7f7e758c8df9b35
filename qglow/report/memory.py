"""A memory plan over time, for people."""

from __future__ import annotations

from qglow.display.blocks import Paragraph, Section, byte_count, table
from qglow.display.document import Document
from qglow.instructions.plan import ALIGNMENT, MemoryPlan, PlannedBuffer
from qglow.instructions.program import Program

_BAR = 40
"""Characters for the most bytes in use at one time."""


def memory_document(program: Program, plan: MemoryPlan) -> Document:
    """Document of the bytes that live while each instruction runs, and of the place of every buffer."""
    live = [_live(plan, index) for index in range(len(program.code))]
    rows = [
        (str(index), instruction.name, instruction.operation.opcode, str(size), _bar(size, plan.used))
        for index, (instruction, size) in enumerate(zip(program.code, live, strict=True))
        if instruction.operation.touches_memory
    ]
    placed = [
        (str(entry.offset), str(entry.size), f"{entry.start} to {entry.end}", entry.name)
        for entry in sorted(plan.entries, key=lambda e: (e.offset, e.start))
    ]
    constants = sum(buffer.byte_size for buffer in program.all_constants())
    ratio = plan.used / plan.bound if plan.bound else 1.0
    summary = (
        f"used {plan.used} bytes, bound {plan.bound} (the most that live at one time), "
        f"used/bound {ratio:.3f}, buffers placed by {plan.order}; constants {byte_count(constants)}"
    )
    titles = ("#>", "instruction", "operation", "bytes in use>", "")
    return Document(
        program.name,
        (
            Section("Memory over time", (table(titles, rows), Paragraph(summary))),
            Section("Buffers", (table(("offset>", "bytes>", "lives from", "buffer"), placed),)),
        ),
    )


def _live(plan: MemoryPlan, index: int) -> int:
    return sum(_padded(entry) for entry in plan.entries if entry.start <= index < entry.end)


def _padded(entry: PlannedBuffer) -> int:
    return -(-entry.size // ALIGNMENT) * ALIGNMENT


def _bar(size: int, most: int) -> str:
    return "#" * round(_BAR * size / most) if most else ""
