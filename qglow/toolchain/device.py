"""Memory of a device, and what to say of a model that does not fit into it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qglow.codegen.calls import make_calls
from qglow.codegen.places import with_bodies
from qglow.core.errors import MemoryLimitError
from qglow.core.files import sha256_hex
from qglow.core.memory import parse_size
from qglow.core.types import Array
from qglow.instructions.plan import MemoryPlan
from qglow.instructions.program import Buffer, Program
from qglow.kernels.emit.target import VectorTarget


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

    def lacks(self, needed: int) -> int:
        """Bytes by which an arena of `needed` is too large; 0 or less where it fits or has no limit."""
        return 0 if self.arena is None else needed - self.arena

    def require_arena(self, program: Program, plan: MemoryPlan, needed: int) -> None:
        """Raise MemoryLimitError that names the first instruction whose values do not fit.

        needed: bytes of the arena of the bundle, which are more than those of the program.
        """
        if self.arena is None or self.lacks(needed) <= 0:
            return
        room = self.arena - (needed - (program.arena_size or 0))
        live = [0] * (len(program.code) + 1)
        for entry in plan.entries:
            for number in range(max(entry.start, 0), min(entry.end, len(program.code))):
                live[number] += entry.size
        first = next((number for number, size in enumerate(live) if size > room), live.index(max(live)))
        first = min(first, len(program.code) - 1)
        raise MemoryLimitError(
            f"the arena takes {_kilobytes(needed)}, and {_kilobytes(self.arena)} are allowed: "
            f"'{program.code[first].name}' is the first to hold {_kilobytes(live[first])} of values; "
            "use smaller inputs, or end the model earlier"
        )

    def require_flash(self, folder: Path, program: Program, machine: VectorTarget | None) -> None:
        """Raise MemoryLimitError that names the largest weights of the bundle that lies in a folder.

        machine: the processor that its kernels are for, None where it has none.
        """
        if self.flash is None:
            return
        (path,) = folder.glob("*.json")
        manifest = json.loads(path.read_text(encoding="utf-8"))
        code, weights = int(manifest["code_bytes"]), int(manifest["weights_bytes"])
        if code + weights <= self.flash:
            return
        sizes = _weights_of_layers(program, machine)
        if not sizes:
            allowed = _kilobytes(self.flash)
            raise MemoryLimitError(
                f"code takes {_kilobytes(code)}, {allowed} are allowed; no layer has weights"
            )
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


def _weights_of_layers(program: Program, machine: VectorTarget | None) -> dict[str, int]:
    """Bytes of the constants of instructions that have some, by name in their order, as kernels pack them;
    what several read counts once."""
    seen: set[str] = set()
    sizes: dict[str, int] = {}
    for name, arrays in _constants(program, machine):
        own = {sha256_hex(np.ascontiguousarray(array).data): array.nbytes for array in arrays if array.size}
        size = sum(size for digest, size in own.items() if digest not in seen)
        seen |= own.keys()
        if size:
            sizes[name] = sizes.get(name, 0) + size
    return sizes


def _constants(program: Program, machine: VectorTarget | None) -> Iterator[tuple[str, list[Array]]]:
    """Constants by the names of the instructions that read them."""
    if machine is None:
        for instruction in program.code:
            yield instruction.name, _data(instruction.reads())
        return
    for call in with_bodies(make_calls(program, machine)):
        yield call.group[0].name, [*_data(call.buffers), *call.arrays]


def _data(buffers: Iterable[Buffer]) -> list[Array]:
    return [buffer.root.data for buffer in buffers if buffer.root.data is not None]


def _kilobytes(size: int) -> str:
    """A size as options of limits write it, in units of 1024 bytes."""
    return f"{size / 1024:.1f}K"
