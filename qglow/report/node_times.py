"""Times of a model's nodes in compiled code and in onnxruntime, side by side."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qglow.core.types import Array
from qglow.display.blocks import Paragraph, Section, table
from qglow.instructions.program import Program
from qglow.report.oracle import OnnxruntimeModel
from qglow.targets.protocol import TimedTarget
from qglow.toolchain.timing import time_instructions

RUNS = 25
TOLERANCE_US = 1.0
"""onnxruntime gives whole microseconds."""
_SHOWN = 3
_FUSED = re.compile(r"(_token_\d+)?_kernel_time$")
"""Suffix that onnxruntime appends to the name of a node that others were fused with."""


@dataclass(frozen=True, slots=True)
class NodeTime:
    """Nodes that compiled code runs together: median microseconds there and in onnxruntime.

    `theirs` is None if onnxruntime has no node of such a name.
    """

    nodes: tuple[str, ...]
    ours: float
    theirs: float | None

    @property
    def loses(self) -> bool:
        """Whether compiled code takes longer."""
        return self.theirs is not None and self.ours > self.theirs + TOLERANCE_US

    @property
    def title(self) -> str:
        """The nodes by name; not all of many."""
        more = f" and {len(self.nodes) - _SHOWN} more" if len(self.nodes) > _SHOWN else ""
        return " + ".join(self.nodes[:_SHOWN]) + more


@dataclass(frozen=True)
class NodeTimes:
    """All nodes of a model on one thread; `elsewhere` is onnxruntime's time in nodes of other names."""

    rows: tuple[NodeTime, ...]
    elsewhere: float

    @property
    def losing(self) -> tuple[NodeTime, ...]:
        """Rows in which onnxruntime is faster, the largest difference first."""
        found = [row for row in self.rows if row.loses]
        return tuple(sorted(found, key=lambda row: (row.theirs or 0.0) - row.ours))


def measure_nodes(
    program: Program, target: TimedTarget, rival: Path | bytes, inputs: Mapping[str, Array]
) -> NodeTimes:
    """Time a program with kernels and memory plan, and onnxruntime on a file of the same model.

    `inputs` are what onnxruntime is given. Raises UsageError for a target that the host cannot run.
    """
    theirs = _onnxruntime_times(rival, inputs)
    rows = []
    for nodes, microseconds in _compiled_times(program, target):
        found = [theirs.pop(name) for name in nodes if name in theirs]
        rows.append(NodeTime(nodes, microseconds, sum(found) if found else None))
    return NodeTimes(tuple(rows), sum(theirs.values()))


def node_section(times: NodeTimes) -> Section:
    """The nodes that cost most first, and those that onnxruntime runs faster."""
    ordered = sorted(times.rows, key=lambda row: -row.ours)
    body = [(row.title, f"{row.ours:.1f}", *_beside(row)) for row in ordered]
    ours, theirs = sum(r.ours for r in times.rows), sum(r.theirs or 0.0 for r in times.rows)
    notes = [
        f"together {ours:.1f} us, in onnxruntime {theirs + times.elsewhere:.1f}, "
        f"{times.elsewhere:.1f} of them in nodes that it added or named anew; one thread. "
        "Its profiler costs it some microseconds a node"
    ]
    if times.losing:
        slower = ", ".join(f"{r.title} ({r.ours - (r.theirs or 0.0):.1f} us)" for r in times.losing)
        notes.append(f"slower than onnxruntime's node: {slower}")
    titles = ("nodes", "qglow, us>", "onnxruntime, us>", "onnxruntime / qglow>")
    return Section("Nodes", (table(titles, body), *map(Paragraph, notes)))


def _beside(row: NodeTime) -> tuple[str, str]:
    if row.theirs is None:
        return "", ""
    return f"{row.theirs:.0f}", f"{row.theirs / row.ours:.2f}" if row.ours else ""


def _compiled_times(program: Program, target: TimedTarget) -> Iterable[tuple[tuple[str, ...], float]]:
    """Nodes that share instructions or a stack, and their time, in the order of the program."""
    timing = time_instructions(program, target, RUNS)
    leaders: dict[int, str] = {}
    nodes: dict[str, dict[str, None]] = {}
    times: dict[str, float] = {}
    for instruction in program.code:
        if not instruction.kernel or not instruction.origin:
            continue
        key = instruction.origin[0]
        if instruction.stack is not None:
            key = leaders.setdefault(instruction.stack, key)
        nodes.setdefault(key, {}).update(dict.fromkeys(instruction.origin))
        times[key] = times.get(key, 0.0) + timing.microseconds[instruction.name]
    return [(tuple(names), times[key]) for key, names in nodes.items()]


def _onnxruntime_times(model: Path | bytes, inputs: Mapping[str, Array]) -> dict[str, float]:
    """Median microseconds of every node by its name without what optimisations append."""
    shapes = {name: array.shape for name, array in inputs.items()}
    with tempfile.TemporaryDirectory(prefix="qglow-nodes-") as folder:
        session = OnnxruntimeModel(model, shapes=shapes, profile=Path(folder))
        for _ in range(RUNS):
            session(inputs)
        events = json.loads(session.end_profile().read_text(encoding="utf-8"))
    found: dict[str, list[float]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            found.setdefault(_FUSED.sub("", event["name"]), []).append(event["dur"])
    return {name: float(np.median(times)) for name, times in found.items()}
