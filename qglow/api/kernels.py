"""Kernels chosen by measuring them on this processor."""

from __future__ import annotations

from qglow.api.data import Progress, start
from qglow.codegen.kernel_choices import MeasuredKernels
from qglow.graph.graph import Graph
from qglow.kernels.isa import select_isa
from qglow.toolchain import lower_graph
from qglow.toolchain.kernel_tuning import KernelSearch, KernelTuning


def tune_kernels(graph: Graph, isa: str | None, progress: Progress | None) -> KernelTuning:
    """Measure the kernels of a graph; `progress` is told of kernels.

    Raises UsageError for an ISA that the host lacks, InputFileError where the cache cannot be written.
    """
    target = select_isa(isa)
    search = KernelSearch(lambda: lower_graph(graph), target, MeasuredKernels.load(target))
    return search.run(start(progress, search.pending))
