"""Passes over instruction programs, one in a file, and the order in which they run."""

from __future__ import annotations

from qglow.core.passes import Pass, PassLog, Pipeline
from qglow.instructions.passes.copies import CopyElimination
from qglow.instructions.passes.dead_stores import DeadStores
from qglow.instructions.passes.lifetimes import HoistDeallocations, SinkAllocations
from qglow.instructions.passes.peephole import Peephole
from qglow.instructions.passes.sharing import ShareBuffers
from qglow.instructions.passes.slices import ExtractViews, InsertViews
from qglow.instructions.passes.stacking import StackDataParallel
from qglow.instructions.program import Program
from qglow.instructions.verifier import verify_program

ALL_PASSES: tuple[type[Pass[Program]], ...] = (
    Peephole,
    DeadStores,
    ExtractViews,
    InsertViews,
    CopyElimination,
    ShareBuffers,
    SinkAllocations,
    HoistDeallocations,
    StackDataParallel,
)


def default_pipeline() -> Pipeline[Program]:
    """Return the passes that run between lowering and kernel selection."""
    return Pipeline(
        (
            Peephole(),
            DeadStores(),
            ExtractViews(),
            InsertViews(),
            CopyElimination(),
            ShareBuffers(),
            DeadStores(),
            SinkAllocations(),
            HoistDeallocations(),
            StackDataParallel(),
        )
    )


def optimize(program: Program, log: PassLog | None = None) -> PassLog:
    """Run the default pipeline over `program` in place, verified after each pass; returns the log."""
    verify_program(program, "before the passes")
    return default_pipeline().run(program, verify_program, log)
