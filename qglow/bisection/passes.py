"""Passes over graphs and programs by name, one after the other, stopped after a number of rewrites."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from qglow.core.errors import UsageError
from qglow.core.passes import Pass, PassLog, Pipeline, parse_pipeline
from qglow.graph.graph import Graph
from qglow.graph.verifier import verify_graph
from qglow.instructions.passes import ALL_PASSES as PROGRAM_PASSES
from qglow.instructions.passes import default_pipeline
from qglow.instructions.program import Program
from qglow.instructions.verifier import verify_program
from qglow.lowering import lower
from qglow.passes import ALL_PASSES, canonical_pipeline
from qglow.quantization.pipeline import FOLDING

FOLDING_PASSES: tuple[type[Pass[Graph]], ...] = tuple(dict.fromkeys(type(step) for step in FOLDING))
LOWER = "lower"
"""Name in a dump of the step from the graph to the program."""

AfterStep = Callable[[str, Graph | Program], None]


@dataclass(frozen=True)
class Steps:
    """Passes over a graph, then passes over the program that it is lowered to; either may be empty."""

    graph: Pipeline[Graph]
    program: Pipeline[Program]

    def __str__(self) -> str:
        return ",".join(str(pipeline) for pipeline in (self.graph, self.program) if pipeline.passes)


def known_passes() -> dict[str, type[Pass[Any]]]:
    """Every pass by name: over graphs, over int8 graphs, and over programs."""
    every: Iterable[type[Pass[Any]]] = (*ALL_PASSES, *FOLDING_PASSES, *PROGRAM_PASSES)
    return {step.name: step for step in every}


def parse_steps(text: str) -> Steps:
    """The passes of a text such as "fold-constants,fold-batchnorm,peephole".

    Passes over graphs come before passes over programs. Raises UsageError for another order and for names
    and options that do not exist.
    """
    pipeline: Pipeline[Any] = parse_pipeline(text, known_passes().values())
    over_program = [type(step) in PROGRAM_PASSES for step in pipeline]
    count = over_program.count(False)
    if any(over_program[:count]):
        first = pipeline.passes[over_program.index(True)]
        raise UsageError(
            f"passes over the graph come before those over the program, as '{first.name}' is", field="passes"
        )
    return Steps(Pipeline(pipeline.passes[:count]), Pipeline(pipeline.passes[count:]))


def default_steps(ir: Graph | Program) -> Steps:
    """Steps that qglow itself runs: over a graph those that make it canonical, over a program its own."""
    if isinstance(ir, Graph):
        return Steps(canonical_pipeline(), Pipeline(()))
    return Steps(Pipeline(()), default_pipeline())


def run_steps(
    ir: Graph | Program, steps: Steps, log: PassLog, after_each: AfterStep | None = None
) -> Graph | Program:
    """The graph or program after the steps; `ir` is changed.

    A graph is lowered where the steps have passes over programs, unless the log's budget is used up before.
    after_each: is told the name of each step and what it left. Raises UsageError for passes over graphs where
    `ir` is a program, VerificationError if a pass leaves something broken.
    """
    told = after_each or (lambda name, ir: None)
    if isinstance(ir, Graph):
        steps.graph.run(ir, verify_graph, log, lambda step, left: told(step.name, left))
        if not steps.program.passes or log.exhausted:
            return ir
        ir = lower(ir)
        told(LOWER, ir)
    elif steps.graph.passes:
        raise UsageError(f"'{steps.graph.passes[0].name}' works on graphs, not on programs", field="passes")
    steps.program.run(ir, verify_program, log, lambda step, left: told(step.name, left))
    return ir
