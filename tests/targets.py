"""Targets as another package registers them: entry points, and a target that only writes files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from qglow.instructions.plan import MemoryPlan, plan_memory
from qglow.instructions.program import Program
from qglow.instructions.text import print_program
from qglow.kernels.selection.choice import NO_CHOICES, Choices
from qglow.lowering.backend import Backend
from qglow.targets.protocol import TargetDescription
from qglow.targets.reference.target import ReferenceTarget


class Paper:
    """Satisfies `BundleTarget`: a program is written as text. Nothing runs it."""

    machine: None = None
    forms: Mapping[str, Callable[[Program], str]] = {"text": print_program}
    backend = Backend("paper")
    description = TargetDescription("paper", "programs as text", "pencil", ("eraser",))

    def refusal(self) -> str | None:
        return "people read it"

    def choices(self) -> Choices:
        return NO_CHOICES

    def select(self, program: Program, choices: Choices = NO_CHOICES, *, epilogues: bool = True) -> None:
        pass

    def plan(self, program: Program, *, reuse: bool = True) -> MemoryPlan:
        return plan_memory(program, reuse=reuse)

    def write(self, program: Program, folder: Path) -> None:
        (folder / "program.txt").write_text(print_program(program))


class Simulator(ReferenceTarget):
    """Satisfies `RunningTarget` under another name."""

    description = TargetDescription("simulator", "the reference under another name")


PAPER = Paper()
SIMULATOR = Simulator()
NO_TARGET = object()


def register(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    """Make installed packages register these targets, "module:attribute" by name, and no others."""
    points = [EntryPoint(name, value, "qglow.targets") for name, value in values.items()]

    def entry_points(group: str) -> list[EntryPoint]:
        assert group == "qglow.targets"
        return points

    monkeypatch.setattr("qglow.targets.registry.entry_points", entry_points)
