"""Compilation of a graph to an executable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from qglow.codegen.weights import WeightBlob
from qglow.core.memory import require_memory
from qglow.core.passes import Pipeline
from qglow.core.types import Array
from qglow.graph.graph import Graph
from qglow.graph.memory import graph_memory
from qglow.instructions.growing import grow_in_place
from qglow.instructions.passes import default_pipeline
from qglow.instructions.passes.sharing import ShareBuffers
from qglow.instructions.passes.stacking import StackDataParallel
from qglow.instructions.program import Program
from qglow.instructions.verifier import verify_program
from qglow.kernels.selection.choice import NO_CHOICES
from qglow.lowering import ANY, Backend, lower
from qglow.lowering.live import NO_LIMITS, LiveResults
from qglow.lowering.thrift import Thrift
from qglow.runtime.cores import choose_processes, choose_threads
from qglow.runtime.executable import Executable
from qglow.runtime.tailed import with_tail
from qglow.runtime.variant import CodeVariant
from qglow.targets.protocol import Emission, RunningTarget, SharingTarget, Target
from qglow.targets.registry import find_or_select, select_target
from qglow.toolchain.artefacts import known_executable
from qglow.toolchain.options import CompileOptions
from qglow.toolchain.planning import plan_within_limit


@dataclass(frozen=True)
class RunTimePlaces:
    """Facts of a graph for run-time sizes that its program uses.

    growing: inputs that outputs continue, see `grow_in_place`. live: inputs that tell which places count,
    limits: results of which only some places matter, see `lower`.
    """

    growing: Sequence[tuple[str, str, int]] = ()
    live: Mapping[str, object] = field(default_factory=dict)
    limits: LiveResults = NO_LIMITS


FIXED = RunTimePlaces()


def lower_graph(graph: Graph, options: CompileOptions | None = None) -> Program:
    """The instruction program after the IR passes, before kernels are selected, for any target."""
    return _lowered(graph, ANY, options or CompileOptions())


def lower_for(graph: Graph, target: Target, thrift: Thrift | None = None) -> Program:
    """The instruction program after the IR passes, with what one target wants whole. thrift: of `lower`."""
    return _lowered(graph, target.backend, CompileOptions(), thrift=thrift)


def selected_program(graph: Graph, isa: str | None = None) -> Program:
    """The program of a graph with the kernels and the memory plan of a target.

    The host need not run a target that is named. Raises UsageError.
    """
    target = find_or_select(isa)
    program = lower_for(graph, target)
    target.select(program, target.choices())
    plan_within_limit(program, target)
    return program


def compile_lowered(program: Program, options: CompileOptions | None = None) -> Executable:
    """Select kernels for `program` (which this changes), plan its memory, compile and load it.

    The program was lowered for any target. Raises UsageError for a target that the host cannot run.
    """
    options = options or CompileOptions()
    return _compiled(program, select_target(options.isa), options)


def compile_graph(graph: Graph, options: CompileOptions | None = None) -> Executable:
    """Lower, optimise, compile and load a graph, float or int8.

    Raises UsageError for a target that the host cannot run, MemoryLimitError where values and constants
    take more memory than is allowed.
    """
    options = options or CompileOptions()
    target = select_target(options.isa)
    return _compiled(_lowered(graph, target.backend, options), target, options)


def compile_together(
    graphs: Sequence[tuple[Graph, RunTimePlaces]], options: CompileOptions | None = None
) -> tuple[list[Executable], int]:
    """Compile graphs of one model, which differ in sizes, and the bytes of the constants that they share.

    Where an output continues an input and that can be done in place, the input is state. Kernels of the last
    graph that has a layer decide how its weights are packed. Listings of the programs have constants without
    data: weights are kept as they are packed, once. Raises what `compile_graph` does.
    """
    options = options or CompileOptions()
    target = select_target(options.isa)
    programs = [_lowered(graph, target.backend, options, places) for graph, places in graphs]
    codes, weights = emit_together(programs, target, options)
    threads = choose_threads(options.threads)
    for code, program in zip(codes, programs, strict=True):
        if code.objects:
            _forget_data(program)
    loaded = [
        target.load(replace(code, weights=weights), threads, partial(_same, program))
        for code, program in zip(codes, programs, strict=True)
    ]
    return loaded, max(one.weight_bytes for one in loaded)


def lower_together(graphs: Sequence[tuple[Graph, RunTimePlaces]]) -> list[Program]:
    """Lower graphs of one model for any target, each as `compile_together` takes it."""
    programs = [_lowered(graph, ANY, CompileOptions(), places) for graph, places in graphs]
    _share_data(programs)
    return programs


def emit_together(
    programs: Sequence[Program], target: RunningTarget, options: CompileOptions
) -> tuple[list[CodeVariant], Array]:
    """Compile lowered programs of one model, which this changes: their code, and the weights that they share.

    Kernels of the last program that has a layer decide how its weights are packed.
    """
    _share_data(programs)
    *others, last = programs
    choices = target.choices() if options.cache else NO_CHOICES
    target.select(last, choices)
    selected = [last]
    for program in reversed(others):
        target.select(program, choices, like=selected)
        selected.append(program)
    if isinstance(target, SharingTarget):
        target.share(selected)
    blob, codes = WeightBlob(), []
    for program in programs:
        plan_within_limit(program, target)
        emission = Emission(options.cache, processes=choose_processes(options.threads), blob=blob)
        codes.append(target.emit(program, emission))
    return codes, blob.finish()


def _same(program: Program) -> Program:
    return program


def _forget_data(program: Program) -> None:
    """Let go of the contents of constants, which packed weights hold."""
    for constant in program.all_constants():
        constant.data = None


def _share_data(programs: Sequence[Program]) -> None:
    """Let programs hold equal constants of one name once."""
    known: dict[str, Array] = {}
    for constant in (constant for program in programs for constant in program.all_constants()):
        if constant.data is None:
            continue
        first = known.setdefault(constant.name, constant.data)
        same = first.shape == constant.data.shape and first.dtype == constant.data.dtype
        if first is not constant.data and same and first.tobytes() == constant.data.tobytes():
            constant.data = first


def compile_whole(graph: Graph, options: CompileOptions | None = None) -> Executable:
    """Compile a graph as `compile_graph`, with the tail behind it: what gives all outputs of the model.

    Raises UsageError too where there is a tail and onnxruntime is missing.
    """
    return with_tail(compile_graph(graph, options), graph.tail)


def compile_known(graph: Graph, options: CompileOptions | None = None) -> Executable:
    """Compile a graph with its tail, or load it where `obtain_executable` has left it in the user's cache.

    Raises the errors of `compile_whole`.
    """
    options = options or CompileOptions()
    if select_target(options.isa).backend.keeps:
        return compile_whole(graph, options)  # what the cache has keeps nothing whole
    program = lower_graph(graph, options)
    return with_tail(known_executable(program, options) or compile_lowered(program, options), graph.tail)


def _lowered(
    graph: Graph,
    backend: Backend,
    options: CompileOptions,
    places: RunTimePlaces = FIXED,
    thrift: Thrift | None = None,
) -> Program:
    require_memory(graph_memory(graph, keep=options.observe), f"graph '{graph.name}'")
    whole = not options.observe
    program = lower(graph, backend, thrift, live=places.live, limits=places.limits, whole=whole)
    grow_in_place(program, places.growing)
    passes = default_pipeline().passes
    if options.observe:
        # An activation that is computed in place of another, or that stays in the registers of a
        # stack, cannot be read later.
        passes = tuple(p for p in passes if not isinstance(p, ShareBuffers | StackDataParallel))
    Pipeline(passes).run(program, verify_program)
    return program


def _compiled(program: Program, target: RunningTarget, options: CompileOptions) -> Executable:
    choices = target.choices() if options.cache else NO_CHOICES
    target.select(program, choices, epilogues=not options.observe)
    plan_within_limit(program, target, reuse=not options.observe)
    code = target.emit(program, Emission(options.cache, processes=choose_processes(options.threads)))
    return target.load(code, choose_threads(options.threads), lambda: program)
