"""Kernels of compiled code by the nodes of the graph that it was made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qglow.core.errors import UsageError
from qglow.graph.graph import Graph
from qglow.instructions.program import Program
from qglow.runtime.variant import CodeVariant
from qglow.targets.registry import find_or_select
from qglow.toolchain.compilation import lower_for


def kernels_of_code(lowered: Program, variants: Sequence[CodeVariant]) -> Mapping[str, str]:
    """The kernels of every node in code that was made of a program; none where there is no code."""
    constants = {buffer.name: np.asarray(buffer.data) for buffer in lowered.constants}
    found: dict[str, str] = {}
    for variant in variants:
        found.update(node_kernels(variant.program(constants), variant.target))
    return found


def kernels_of_graph(graph: Graph) -> Mapping[str, str]:
    """The kernels that every node would have on this host; none where no target fits it."""
    try:
        target = find_or_select()
    except UsageError:
        return {}
    program = lower_for(graph, target)
    target.select(program, target.choices())
    return node_kernels(program, target.description.name)


def node_kernels(program: Program, target: str) -> Mapping[str, str]:
    """The kernels that execute each node, in words, for a program whose kernels are selected.

    A part of a node has the node's name with an end of its own behind a point, and counts for the node.
    """
    found: dict[str, dict[str, None]] = {}
    for instruction in program.code:
        if instruction.kernel:
            for origin in instruction.origin:
                for name in _names(origin):
                    found.setdefault(name, {})[instruction.kernel] = None
    return {name: f"{', '.join(kernels)} ({target})" for name, kernels in found.items()}


def _names(origin: str) -> list[str]:
    """The name of a part, and every name that it may be a part of."""
    points = [place for place, character in enumerate(origin) if character == "."]
    return [origin, *(origin[:place] for place in points if place)]
