"""Executables of targets that the host does not run: bundles in an emulator, or of compiled sources."""

from __future__ import annotations

import tempfile
from pathlib import Path

from qglow.emulation.bundle import load_bundle, runs_bundles_of
from qglow.graph.graph import Graph
from qglow.runtime.executable import Executable
from qglow.targets.registry import find_or_select
from qglow.toolchain.compilation import compile_graph
from qglow.toolchain.files import write_bundle
from qglow.toolchain.options import CompileOptions


def compile_or_emulate(graph: Graph, options: CompileOptions) -> Executable:
    """Compile a graph, in this process where the host runs the target, else as a bundle that is loaded.

    Raises what `compile_graph`, `write_bundle` and `load_bundle` do.
    """
    target = find_or_select(options.isa)
    name = target.description.name
    if target.refusal() is None or not runs_bundles_of(target):
        return compile_graph(graph, options)
    with tempfile.TemporaryDirectory(prefix="qglow-") as folder:
        made = Path(folder) / "bundle"
        write_bundle(made, graph, name)
        return load_bundle(made)
