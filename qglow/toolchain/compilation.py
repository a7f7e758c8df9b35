"""From a graph to an executable."""

from __future__ import annotations

from dataclasses import dataclass

from qglow.codegen.compiler import compile_program, default_cache
from qglow.codegen.jit import load
from qglow.codegen.kernel_choices import saved_choices
from qglow.core.passes import Pipeline
from qglow.graph.graph import Graph
from qglow.instructions.passes import default_pipeline
from qglow.instructions.passes.sharing import ShareBuffers
from qglow.instructions.passes.stacking import StackDataParallel
from qglow.instructions.plan import plan_memory
from qglow.instructions.program import Program
from qglow.instructions.verifier import verify_program
from qglow.kernels.choice import NO_CHOICES
from qglow.kernels.isa import select_isa
from qglow.kernels.select import select_kernels
from qglow.lowering import CPU, lower
from qglow.runtime.cores import choose_processes, choose_threads
from qglow.runtime.executable import Executable
from qglow.runtime.signature import Signature


@dataclass(frozen=True)
class CompileOptions:
    """How to compile.

    isa: name of an instruction set; None for QGLOW_ISA or the best that the host has.
    threads: how many threads may share a call; None for QGLOW_THREADS or the physical cores that
        the process may use. The code is the same for every number; where there is much of it, it is
        generated in as many processes, but no more than there are cores.
    observe: keep every activation in memory of its own, so that it can be read after a call.
    cache: use the object cache of the user, and the kernels that were measured to be best.
    """

    isa: str | None = None
    threads: int | None = None
    observe: bool = False
    cache: bool = True

    def __post_init__(self) -> None:
        choose_threads(self.threads)


def lower_graph(graph: Graph, options: CompileOptions | None = None) -> Program:
    """The instruction program after the IR passes, before kernels are selected."""
    options = options or CompileOptions()
    program = lower(graph, CPU)
    passes = default_pipeline().passes
    if options.observe:
        # An activation that is computed in place of another, or that stays in the registers of a
        # stack, cannot be read later.
        passes = tuple(p for p in passes if not isinstance(p, ShareBuffers | StackDataParallel))
    Pipeline(passes).run(program, verify_program)
    return program


def compile_lowered(program: Program, options: CompileOptions | None = None) -> Executable:
    """Select kernels for `program` (which this changes), plan its memory, compile and load it.

    Raises UsageError for an ISA that the host lacks.
    """
    options = options or CompileOptions()
    isa, threads = select_isa(options.isa), choose_threads(options.threads)
    choices = saved_choices(isa) if options.cache else NO_CHOICES
    select_kernels(program, isa, choices, epilogues=not options.observe)
    plan_memory(program, reuse=not options.observe)
    cache, processes = default_cache() if options.cache else None, choose_processes(options.threads)
    compiled = compile_program(program, isa, cache, processes=processes)
    return Executable(Signature.of(program), compiled, load(compiled), threads, lambda: program)


def compile_graph(graph: Graph, options: CompileOptions | None = None) -> Executable:
    """Lower, optimise, compile and load a graph, float or int8."""
    return compile_lowered(lower_graph(graph, options), options)
