"""Stages of a graph on its way to machine code, as text."""

from __future__ import annotations

from dataclasses import replace

from qglow.core.errors import UsageError
from qglow.display.document import Document
from qglow.graph.graph import Graph
from qglow.graph.text import print_graph
from qglow.instructions.text import print_program
from qglow.report.kernels import kernel_document
from qglow.report.memory import memory_document
from qglow.report.tail_time import tail_section
from qglow.targets import capabilities
from qglow.targets.registry import find_or_select, find_target
from qglow.toolchain.compilation import lower_for, lower_graph
from qglow.toolchain.timing import time_instructions

STAGES = ("graph", "instructions", "kernels", "memory", "llvm", "asm")
_WIDTH = 170


def stage_text(graph: Graph, stage: str = "graph", isa: str | None = None, *, measure: bool = False) -> str:
    """The text of a graph at a stage of `STAGES`, or in another language that a named target has.

    "instructions" is the program before kernels are selected or, where a target is named, with that
    target's kernels and the memory plan. "kernels" lists these with their estimated cost, "memory" the
    plan over time; these, "llvm" (before LLVM's own optimisation) and "asm" are for
    the named target, which the host need not run, else for the one that `compile` would choose.
    `measure`: "kernels" with the time that each takes here and its share of the processor's peak.
    Raises UsageError for an unknown stage or target, for a stage that the target does not have, or to measure
    another stage or a target that the host cannot run.
    """
    if measure and stage != "kernels":
        raise UsageError(f"stage {stage!r} has no times; measure the stage kernels", field="stage")
    stages = STAGES if isa is None else tuple(dict.fromkeys([*STAGES, *find_target(isa).forms]))
    if stage not in stages:
        raise UsageError(f"stage {stage!r} is not one of {', '.join(stages)}", field="stage")
    if stage == "graph":
        return print_graph(graph)
    if stage == "instructions" and isa is None:
        return print_program(lower_graph(graph))
    target = find_or_select(isa)
    program = lower_for(graph, target)
    choices = target.choices()
    target.select(program, choices)
    plan = target.plan(program)
    if stage == "instructions":
        return print_program(program)
    if stage == "kernels":
        machine = capabilities.machine(target)
        timing = time_instructions(program, capabilities.timed(target)) if measure else None
        document = kernel_document(program, machine, timing, choices)
        took = None if timing is None else sum(timing.microseconds.values())
        return _printed(replace(document, sections=(*document.sections, *tail_section(graph, isa, took))))
    if stage == "memory":
        return _printed(memory_document(program, plan))
    return capabilities.form(target, stage)(program)


def _printed(document: Document) -> str:
    from qglow.display.terminal import to_text  # rich takes long to import

    return to_text(document, _WIDTH)
