"""Memory of a device, and what to say of a model that does not fit into it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from qglow.core.errors import MemoryLimitError
from qglow.core.memory import parse_size
from qglow.instructions.plan import MemoryPlan
from qglow.instructions.program import Buffer, Program


@dataclass(frozen=True)
class DeviceMemory:
    """Limits of a bundle in bytes, None for none. arena: memory that is written. flash: code and weights."""

    arena: int | None = None
    flash: int | None = None

    @staticmethod
    def of(arena: str | None, flash: str | None) -> DeviceMemory:
        """Limits from sizes such as "64K". Raises UsageError for what is no size."""
        sizes = {"max_arena": arena, "max_flash": flash}
        limits = [None if text is None else parse_size(text, name) for name, text in sizes.items()]
        return DeviceMemory(*limits)

    def lacks(self, program: Program) -> int:
        """Bytes by which the arena of a program is too large; 0 or less where it fits or has no limit."""
        return 0 if self.arena is None else (program.arena_size or 0) - self.arena

    def require_arena(self, program: Program, plan: MemoryPlan) -> None:
        """Raise MemoryLimitError that names the first instruction whose values do not fit."""
        needed = program.arena_size or 0
        if self.arena is None or self.lacks(program) <= 0:
            return
        live = [0] * (len(program.code) + 1)
        for entry in plan.entries:
            for number in range(max(entry.start, 0), min(entry.end, len(program.code))):
                live[number] += entry.size
        first = next((number for number, size in enumerate(live) if size > self.arena), live.index(max(live)))
        first = min(first, len(program.code) - 1)
        raise MemoryLimitError(
            f"the arena takes {_kilobytes(needed)}, and {_kilobytes(self.arena)} are allowed: "
            f"'{program.code[first].name}' is the first to hold {_kilobytes(live[first])} of values; "
            "use smaller inputs, or end the model earlier"
        )

    def require_flash(self, folder: Path, program: Program) -> None:
        """Raise MemoryLimitError that names the largest weights of the bundle that lies in a folder."""
        if self.flash is None:
            return
        (path,) = folder.glob("*.json")
        manifest = json.loads(path.read_text(encoding="utf-8"))
        code, weights = int(manifest["code_bytes"]), int(manifest["weights_bytes"])
        if code + weights <= self.flash:
            return
        sizes = _weights_of_layers(program)
        total, first = code, next(iter(sizes))
        for name, size in sizes.items():
            total, first = total + size, name
            if total > self.flash:
                break
        name, largest = max(sizes.items(), key=lambda item: item[1])
        raise MemoryLimitError(
            f"code takes {_kilobytes(code)} and weights {_kilobytes(weights)}, and {_kilobytes(self.flash)} "
            f"are allowed together: '{first}' is the first layer whose weights find no room behind the code; "
            f"'{name}' has the largest weights, {_kilobytes(largest)}"
        )


def _weights_of_layers(program: Program) -> dict[str, int]:
    """Bytes of the constants of instructions, by name in their order; what several read counts once."""
    seen: set[Buffer] = set()
    sizes: dict[str, int] = {}
    for instruction in program.code:
        own = {b.root for b in instruction.reads() if b.root.data is not None} - seen
        sizes[instruction.name] = sum(buffer.byte_size for buffer in own)
        seen |= own
    return sizes


def _kilobytes(size: int) -> str:
    """A size as options of limits write it, in units of 1024 bytes."""
    return f"{size / 1024:.1f}K"
