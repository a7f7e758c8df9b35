"""What a graph becomes on its way to machine code, as text."""

from __future__ import annotations

from qglow.codegen.compiler import emit_assembly, emit_llvm_text
from qglow.core.errors import UsageError
from qglow.graph.graph import Graph
from qglow.graph.text import print_graph
from qglow.instructions.plan import plan_memory
from qglow.instructions.program import Program
from qglow.instructions.text import print_program
from qglow.kernels.isa import Isa, isa_by_name, select_isa
from qglow.kernels.select import select_kernels
from qglow.toolchain import lower_graph

STAGES = ("graph", "instructions", "llvm", "asm")


def stage_text(graph: Graph, stage: str = "graph", isa: str | None = None) -> str:
    """The text of a graph at a stage of `STAGES`.

    "instructions" is the program before kernels are selected or, where an ISA is named, with that
    ISA's kernels and the memory plan. "llvm" (before LLVM's own optimisation) and "asm" are for
    the named ISA, which the host need not have, else for the one that `compile` would choose.
    Raises UsageError for an unknown stage or ISA.
    """
    if stage not in STAGES:
        raise UsageError(f"stage {stage!r} is not one of {', '.join(STAGES)}")
    if stage == "graph":
        return print_graph(graph)
    program = lower_graph(graph)
    if stage == "instructions" and isa is None:
        return print_program(program)
    target = select_isa() if isa is None else isa_by_name(isa)
    _plan(program, target)
    if stage == "instructions":
        return print_program(program)
    return emit_llvm_text(program, target) if stage == "llvm" else emit_assembly(program, target)


def _plan(program: Program, isa: Isa) -> None:
    select_kernels(program, isa)
    plan_memory(program)
