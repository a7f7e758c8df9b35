"""The work of every step grows linearly with the number of nodes: calls are counted, not seconds."""

from __future__ import annotations

from collections.abc import Callable
from cProfile import Profile
from pathlib import Path
from typing import TypeVar

import onnx
import pytest

from qglow import load_model
from qglow.profiling.nodes import insert_profile_nodes
from qglow.toolchain.compilation import selected_program
from scripts.benchmarks.models.growing import growing_network, growing_samples

SIZES = {"residual": (45, 90), "unary": (36, 72), "transformer": (29, 58)}
"""Whole blocks of nodes, so that both sizes have the same operators in the same proportions."""
MOST_GROWTH = 1.15
"""Of the calls for each node, from one size to the next, which is twice as large. A step that looks at every
node for each of them comes to nearly 2."""
T = TypeVar("T")


class Calls:
    """Counts the calls of Python functions and resumptions of generators, and those of built-in functions."""

    def __init__(self) -> None:
        self.by_step: dict[str, int] = {}

    def of(self, step: str, work: Callable[[], T]) -> T:
        """What `work` gives; its calls are those of the step."""
        with Profile() as counter:
            result = work()
        self.by_step[step] = sum(entry.callcount for entry in counter.getstats())
        return result


def calls_by_step(kind: str, nodes: int, folder: Path) -> dict[str, int]:
    """All that is done with a model, but for emitting code and counting values."""
    network, path, calls = growing_network(kind, nodes), folder / f"{nodes}.onnx", Calls()
    onnx.save(network, path)
    model = calls.of("load", lambda: load_model(path))
    profile = model.profile(growing_samples(network, 2), engine="interpreter")
    probed = calls.of("insert profile nodes", lambda: insert_profile_nodes(model.graph))
    calls.of("profiled program", lambda: selected_program(probed, "avx2"))
    quantized = calls.of("quantize", lambda: model.quantize(profile, check=False, repair=False))
    calls.of("program", lambda: selected_program(quantized.graph, "avx2"))
    calls.of("text", quantized.text)
    calls.of("export", quantized.qdq_bytes)
    return calls.by_step


@pytest.mark.parametrize("kind", SIZES)
def test_the_work_for_a_node_does_not_grow_with_the_number_of_nodes(kind: str, tmp_path: Path) -> None:
    few, many = SIZES[kind]
    calls_by_step(kind, few, tmp_path)  # what is cached for good is not counted
    fewer, more = calls_by_step(kind, few, tmp_path), calls_by_step(kind, many, tmp_path)
    growth = {step: more[step] / (2 * fewer[step]) for step in fewer}
    assert all(ratio < MOST_GROWTH for ratio in growth.values()), growth
