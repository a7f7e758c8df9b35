"""What a graph becomes on its way to machine code, as text."""

from __future__ import annotations

from qglow.codegen.compiler import emit_assembly, emit_llvm_text
from qglow.codegen.kernel_choices import saved_choices
from qglow.core.errors import UsageError
from qglow.graph.graph import Graph
from qglow.graph.text import print_graph
from qglow.instructions.plan import plan_memory
from qglow.instructions.program import Program
from qglow.instructions.text import print_program
from qglow.kernels.isa import isa_by_name, select_isa
from qglow.kernels.select import select_kernels
from qglow.report.kernels import kernel_document
from qglow.report.memory import memory_document
from qglow.report.terminal import to_text
from qglow.toolchain import lower_graph
from qglow.toolchain.timing import time_instructions

STAGES = ("graph", "instructions", "kernels", "memory", "llvm", "asm")
_WIDTH = 170


def selected_program(graph: Graph, isa: str | None = None) -> Program:
    """The program of a graph with the kernels and the memory plan of an ISA. Raises UsageError."""
    program = lower_graph(graph)
    target = select_isa() if isa is None else isa_by_name(isa)
    select_kernels(program, target, saved_choices(target))
    plan_memory(program)
    return program


def stage_text(graph: Graph, stage: str = "graph", isa: str | None = None, *, measure: bool = False) -> str:
    """The text of a graph at a stage of `STAGES`.

    "instructions" is the program before kernels are selected or, where an ISA is named, with that
    ISA's kernels and the memory plan. "kernels" lists these with their estimated cost, "memory" the
    plan over time; these, "llvm" (before LLVM's own optimisation) and "asm" are for
    the named ISA, which the host need not have, else for the one that `compile` would choose.
    `measure`: "kernels" with the time that each takes here and its share of the processor's peak.
    Raises UsageError for an unknown stage or ISA, or to measure another stage or an ISA that the host lacks.
    """
    if measure and stage != "kernels":
        raise UsageError(f"stage {stage!r} has no times; measure the stage kernels")
    if stage not in STAGES:
        raise UsageError(f"stage {stage!r} is not one of {', '.join(STAGES)}")
    if stage == "graph":
        return print_graph(graph)
    program = lower_graph(graph)
    if stage == "instructions" and isa is None:
        return print_program(program)
    target = select_isa() if isa is None else isa_by_name(isa)
    choices = saved_choices(target)
    select_kernels(program, target, choices)
    plan = plan_memory(program)
    if stage == "instructions":
        return print_program(program)
    if stage == "kernels":
        timing = time_instructions(program, target) if measure else None
        return to_text(kernel_document(program, target, timing, choices), _WIDTH)
    if stage == "memory":
        return to_text(memory_document(program, plan), _WIDTH)
    return emit_llvm_text(program, target) if stage == "llvm" else emit_assembly(program, target)
