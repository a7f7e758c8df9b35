"""Kernels of compiled code by the nodes of the graph that it was made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qglow.core.errors import UsageError
from qglow.display.blocks import percent
from qglow.graph.graph import Graph
from qglow.instructions.program import Program
from qglow.kernels.emit.kernel import parse_kernel
from qglow.kernels.emit.target import VectorTarget
from qglow.runtime.variant import CodeVariant
from qglow.targets.registry import find_or_select, find_target
from qglow.toolchain.compilation import lower_for


@dataclass(frozen=True)
class NodeCode:
    """Code of a node: its kernels, and its share of the estimated time of a run, 0 to 1; None without one.

    Of a kernel that executes several nodes, each has an equal part.
    """

    kernels: tuple[str, ...]
    target: str
    share: float | None = None

    def facts(self) -> Iterator[tuple[str, str]]:
        """Facts for a panel, by their titles."""
        yield "kernel", f"{', '.join(self.kernels)} ({self.target})"
        if self.share is not None:
            yield "time", f"{percent(self.share)} of a run, estimated"


def kernels_of_code(lowered: Program, variants: Sequence[CodeVariant]) -> Mapping[str, NodeCode]:
    """The kernels of every node in code that was made of a program; none where there is no code."""
    constants = {buffer.name: np.asarray(buffer.data) for buffer in lowered.all_constants()}
    found: dict[str, NodeCode] = {}
    for variant in variants:
        found.update(node_kernels(variant.program(constants), variant.target, _machine(variant.target)))
    return found


def _machine(name: str) -> VectorTarget | None:
    """The description of a target that estimates are made for; None for one that is not installed."""
    try:
        return find_target(name).machine
    except UsageError:
        return None


def kernels_of_graph(graph: Graph) -> Mapping[str, NodeCode]:
    """The kernels that every node would have on this host; none where no target fits it."""
    try:
        target = find_or_select()
    except UsageError:
        return {}
    program = lower_for(graph, target)
    target.select(program, target.choices())
    return node_kernels(program, target.description.name, target.machine)


def node_kernels(program: Program, target: str, machine: VectorTarget | None) -> Mapping[str, NodeCode]:
    """The kernels that execute each node, for a program whose kernels are selected for a machine.

    A part of a node has the node's name with an end of its own behind a point, and counts for the node.
    """
    found: dict[str, dict[str, None]] = {}
    cycles: dict[str, float] = {}
    total = 0.0
    for instruction in program.code:
        if not instruction.kernel:
            continue
        cost = 0.0
        if machine is not None:
            cost = parse_kernel(instruction.kernel, machine).cost(instruction, machine)
        total += cost
        for origin in instruction.origin:
            for name in _names(origin):
                found.setdefault(name, {})[instruction.kernel] = None
                cycles[name] = cycles.get(name, 0.0) + cost / len(instruction.origin)
    return {
        name: NodeCode(tuple(kernels), target, cycles[name] / total if total else None)
        for name, kernels in found.items()
    }


def _names(origin: str) -> list[str]:
    """The name of a part, and every name that it may be a part of."""
    points = [place for place, character in enumerate(origin) if character == "."]
    return [origin, *(origin[:place] for place in points if place)]
