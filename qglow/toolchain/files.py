"""A graph as files: model.qglow, or the bundle of a target that runs without Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from qglow.core.errors import UnsupportedError, UsageError
from qglow.graph.graph import Graph
from qglow.runtime.collection import save_collection
from qglow.targets.protocol import BundleTarget, PartedTarget, RunningTarget, StreamTarget
from qglow.targets.registry import find_or_select
from qglow.toolchain.artefacts import write_artefact
from qglow.toolchain.bounded import ResizableModel
from qglow.toolchain.bounded_inputs import ProgramSizes
from qglow.toolchain.collected import make_collection
from qglow.toolchain.compilation import lower_graph
from qglow.toolchain.device import DeviceMemory
from qglow.toolchain.fitting import write_fitting
from qglow.toolchain.options import CompileOptions

PROGRAM_SUFFIX, BUNDLE_SUFFIX = ".qglow", ".bundle"


def write_graph(path: Path, graph: Graph, options: CompileOptions | None = None) -> None:
    """Lower a graph, compile it for one target, and write what the target makes of it, whole or not at all.

    This is a file model.qglow, and a folder for a target that Python cannot call. Raises UsageError for a
    target that can neither run here nor write bundles, UnsupportedError for what the target cannot execute,
    InputFileError if `path` cannot be written.
    """
    options = options or CompileOptions()
    target = _writer(options.isa)
    if target is None:
        write_artefact(path, lower_graph(graph, options), options, graph.tail)
    else:
        _write(path, graph, target, DeviceMemory())


def write_programs(
    path: Path, model: ResizableModel, wanted: Sequence[ProgramSizes], options: CompileOptions | None = None
) -> tuple[str, ...]:
    """Compile programs for these sizes for one target and write them to one file, whole or not at all.

    Returns sentences on ranges that have a program for each size. Raises what `make_collection` does, and
    UsageError for a target that writes no such file, InputFileError if `path` cannot be written.
    """
    options = options or CompileOptions()
    if _writer(options.isa) is not None:
        raise UsageError("a bundle has one program: give one shape, without ranges", field="shapes")
    made = make_collection(model, wanted, options)
    save_collection(path, made.stored, made.code)
    return made.notes


def write_bundle(
    folder: Path,
    graph: Graph,
    isa: str | None = None,
    memory: DeviceMemory | None = None,
    threads: int = 1,
    states: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Write a graph as a bundle into a folder that is new or empty, whole or not at all.

    isa: a target that writes bundles, "host" (or None) for the fastest that this processor runs. threads:
    of the caller's, for which it has parts. states: inputs that it keeps from run to run, each with the
    output that the next run reads there. Returns sentences on what was done to fit the memory. Raises
    UsageError for a target that writes no bundles and for states that do not fit, MemoryLimitError for what
    does not fit all the same, otherwise what `write_graph` does.
    """
    target = find_or_select(isa)
    name = target.description.name
    if not isinstance(target, BundleTarget):
        raise UsageError(f"target '{name}' writes no bundles; qglow targets lists those that do")
    if threads > 1 and not isinstance(target, PartedTarget):
        raise UsageError(f"bundles of '{name}' have no parts for threads", field="threads")
    if states and not isinstance(target, StreamTarget):
        raise UsageError(f"bundles of '{name}' keep no states", field="states")
    if isinstance(target, PartedTarget):
        target = target.in_parts(threads)
    if states and isinstance(target, StreamTarget):
        target = target.keeping(states)
    return _write(folder, graph, target, memory or DeviceMemory())


def suffix_for(isa: str | None) -> str:
    """Usual suffix of the file that `write_graph` writes. Raises UsageError for an unknown target."""
    return PROGRAM_SUFFIX if _writer(isa) is None else BUNDLE_SUFFIX


def _writer(isa: str | None) -> BundleTarget | None:
    """The target if it only writes bundles, None if Python can call its programs."""
    target = find_or_select(isa)
    return target if isinstance(target, BundleTarget) and not isinstance(target, RunningTarget) else None


def _hosted(graph: Graph) -> list[str]:
    """Nodes that onnxruntime runs, those inside of others too, for people."""
    own = [f"'{node.name}' ({node.operator.hosted.kinds})" for node in graph.nodes if node.operator.hosted]
    return own + [name for region in graph.regions() for name in _hosted(region)]


def _write(folder: Path, graph: Graph, target: BundleTarget, memory: DeviceMemory) -> tuple[str, ...]:
    hosted = _hosted(graph)
    hosted += [] if graph.tail is None else [f"'{name}' ({graph.tail.kinds})" for name in graph.tail.nodes]
    if hosted:
        more = f" and {len(hosted) - 1} more" if len(hosted) > 1 else ""
        raise UnsupportedError(
            f"{hosted[0]}{more} would have to run in onnxruntime, and {target.description.name} runs without "
            "Python; end the model before it, or use a target that Python calls"
        )
    return write_fitting(folder, graph, target, memory)
