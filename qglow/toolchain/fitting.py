"""Choice of the fastest form of a program that fits the memory of a device.

What is tried to make the arena smaller, in this order: images without borders; a search for another order of
nodes; chains of images in strips of rows, where rows that two strips need are computed twice. What is tried
to make code and weights smaller: LLVM's own means and weights of a byte, then smaller tiles. Of the forms
that fit the arena, those of less estimated time are tried first. All give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from qglow.core.errors import MemoryLimitError
from qglow.core.folders import new_folder
from qglow.graph.graph import Graph
from qglow.instructions.plan import MemoryPlan
from qglow.instructions.program import Program
from qglow.kernels.emit.kernel import parse_kernel
from qglow.kernels.emit.target import VectorTarget
from qglow.lowering.thrift import Thrift
from qglow.targets.protocol import SMALLEST_CODE, BundleTarget, Saving, SizedTarget, ThriftyTarget
from qglow.toolchain.compilation import lower_for
from qglow.toolchain.device import DeviceMemory

MOST_ROUNDS = 8
LESS = 0.85
"""Strips are asked for so often, each time for so much less: the estimate knows neither borders nor gaps."""
_CODE = (
    "",
    "code that LLVM keeps small, weights of a byte",
    "small code in small tiles, weights of a byte",
    "the smallest code in small tiles, weights of a byte",
)


@dataclass(frozen=True)
class _Request:
    """Ways to save memory. search: for an order of nodes. most: live bytes for strips, or None."""

    saving: Saving = Saving()
    search: bool = False
    most: int | None = None


@dataclass(frozen=True)
class _Form:
    """A selected and planned program, how it was asked for, and the chains that are in strips, in phrases.

    arena: bytes that a bundle of it needs, which holds more than the program's own.
    """

    program: Program
    plan: MemoryPlan
    arena: int
    request: _Request
    strips: tuple[str, ...]

    def cycles(self, machine: VectorTarget | None) -> float:
        """Estimated time on a processor; 0 on a target without kernels."""
        if machine is None:
            return 0.0
        work = [i for i in self.program.code if i.kernel]
        return sum(parse_kernel(i.kernel, machine).cost(i, machine) for i in work)


def write_fitting(folder: Path, graph: Graph, target: BundleTarget, memory: DeviceMemory) -> tuple[str, ...]:
    """Write the fastest form of a graph that fits the memory; returns sentences on what was done for it.

    Raises MemoryLimitError with the first layer that does not fit, for the smallest form.
    """
    usual = _form(graph, target, _Request())
    if not isinstance(target, ThriftyTarget):
        memory.require_arena(usual.program, usual.plan, usual.arena)
        _write(folder, usual, target, memory)
        return ()
    forms = sorted(_fitting(graph, target, memory, usual), key=lambda form: form.cycles(target.machine))
    for code in range(SMALLEST_CODE + 1):
        for form in forms:
            chosen = _with_code(graph, target, form, code)
            is_last = code == SMALLEST_CODE and form is forms[-1]
            try:
                memory.require_arena(chosen.program, chosen.plan, chosen.arena)
                _write(folder, chosen, target.saving(chosen.request.saving), memory)
            except MemoryLimitError:
                if is_last or memory.flash is None:
                    raise
                continue
            return tuple(_told(chosen, usual, target.machine))
    raise AssertionError("the last form was written or refused")


def _write(folder: Path, form: _Form, target: BundleTarget, memory: DeviceMemory) -> None:
    with new_folder(folder) as made:
        target.write(form.program, made)
        memory.require_flash(made, form.program, target.machine)


def _fitting(graph: Graph, target: ThriftyTarget, memory: DeviceMemory, usual: _Form) -> list[_Form]:
    """The forms that fit the arena. Raises MemoryLimitError for the smallest where none does."""
    if memory.arena is None or memory.lacks(usual.arena) <= 0:
        return [usual]
    beside = usual.arena - (usual.program.arena_size or 0)
    smaller = list(_smaller(graph, target, memory, max(1, memory.arena - beside)))
    fitting = [form for form in smaller if memory.lacks(form.arena) <= 0]
    if not fitting:
        least = min([usual, *smaller], key=lambda form: form.arena)
        memory.require_arena(least.program, least.plan, least.arena)
    return fitting


def _smaller(graph: Graph, target: ThriftyTarget, memory: DeviceMemory, room: int) -> Iterator[_Form]:
    """Forms of smaller arenas, until strips make one that fits, or do not help any more.

    room: bytes for values of the program.
    """
    borders = Saving(borders=True)
    for saving in (borders, Saving()):
        yield _form(graph, target, _Request(saving, search=True))
    for saving in (Saving(), borders):
        for turn in range(MOST_ROUNDS):
            form = _form(graph, target, _Request(saving, True, int(room * LESS**turn)))
            yield form
            if memory.lacks(form.arena) <= 0:
                break


def _with_code(graph: Graph, target: ThriftyTarget, form: _Form, code: int) -> _Form:
    if code == form.request.saving.code:
        return form
    return _form(graph, target, replace(form.request, saving=replace(form.request.saving, code=code)))


def _form(graph: Graph, target: BundleTarget, request: _Request) -> _Form:
    thrift = Thrift(request.most) if request.search else None
    program = lower_for(graph, target, thrift)
    chosen = target.saving(request.saving) if isinstance(target, ThriftyTarget) else target
    chosen.select(program)
    strips = () if thrift is None else tuple(thrift.done)
    plan = chosen.plan(program)
    arena = chosen.arena_bytes(program) if isinstance(chosen, SizedTarget) else program.arena_size or 0
    return _Form(program, plan, arena, request, strips)


def _told(form: _Form, usual: _Form, machine: VectorTarget | None) -> Iterator[str]:
    """Sentences on what differs from the usual form; none where it is the usual one."""
    saving, before, after = form.request.saving, usual.arena, form.arena
    means = [f"{one} of rows" for one in form.strips]
    means += ["images without borders"] if saving.borders else []
    means += ["another order of nodes"] if form.request.search and not means else []
    if means:
        yield f"to fit the arena ({before:,} bytes as usual, now {after:,}): {'; '.join(means)}"
    if saving.code:
        yield f"to fit the flash: {_CODE[saving.code]}"
    slower = form.cycles(machine) / usual.cycles(machine) - 1.0 if usual.cycles(machine) else 0.0
    if means or saving.code:
        yield f"estimated time {slower:+.0%}, beside what smaller code costs; not a bit of a result differs"
