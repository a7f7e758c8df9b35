"""Golden files: `input => expected`, or `=> unchanged: node: reason; node: reason`.

Every input and every result is also verified, read back from its text, and run: a pass that
changes what a graph computes fails whatever its golden file says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from qglow.core.passes import PassLog, Pipeline, parse_pipeline
from qglow.core.types import Array
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter
from qglow.graph.text import parse_graph, print_graph
from qglow.graph.verifier import verify_graph
from qglow.passes import ALL_PASSES, canonical_pipeline

FILES = sorted((Path(__file__).parents[2] / "text" / "passes").glob("*.txt"))


@dataclass(frozen=True)
class Case:
    name: str
    passes: str
    before: str
    after: str
    reasons: tuple[str, ...]

    def pipeline(self) -> Pipeline[Graph]:
        return canonical_pipeline() if self.passes == "canonical" else parse_pipeline(self.passes, ALL_PASSES)


def cases() -> Iterator[Case]:
    for path in FILES:
        for block in path.read_text().split("### ")[1:]:
            title, passes, rest = block.split("\n", 2)
            before, after = rest.split("=>", 1)
            name = f"{path.stem}: {title}"
            if after.startswith(" unchanged"):
                reasons = after.strip().removeprefix("unchanged").removeprefix(": ")
                yield Case(name, passes.removeprefix("passes: "), before, before, _split(reasons))
            else:
                yield Case(name, passes.removeprefix("passes: "), before, after.strip() + "\n", ())


def _split(reasons: str) -> tuple[str, ...]:
    return tuple(reasons.split("; ")) if reasons else ()


CASES = list(cases())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_pass_gives_the_expected_graph(case: Case) -> None:
    graph = parse_graph(case.before)
    assert print_graph(graph) == case.before, "the input is not written as it is printed"
    verify_graph(graph, "input")
    result, log = graph.copy(), PassLog()
    case.pipeline().run(result, verify_graph, log)
    assert print_graph(result) == case.after
    if case.after == case.before:
        assert log.rewrites == 0
        refused = [f"{entry.where}: {entry.what}" for entry in log.entries if not entry.applied]
        assert refused == list(case.reasons)
    assert print_graph(parse_graph(case.after)) == case.after
    if not any(node.operator.name in ("Gather", "BlockGather") for node in result.nodes):
        assert_same_results(graph, result)


def test_every_pass_fires_somewhere_and_says_somewhere_why_not() -> None:
    fires = {name for case in CASES if case.after != case.before for name in _names(case)}
    refuses = {name for case in CASES if case.reasons for name in _names(case)}
    assert {cls.name for cls in ALL_PASSES} <= fires
    assert {cls.name for cls in ALL_PASSES} - {"eliminate-dead-nodes"} <= refuses


def _names(case: Case) -> list[str]:
    """Names of the passes, without their options."""
    return [name.partition("{")[0] for name in case.passes.split(",")]


def assert_same_results(before: Graph, after: Graph) -> None:
    rng = np.random.default_rng(0)
    inputs = {value.name: _random(rng, value.type.shape, value.type.is_float) for value in before.inputs}
    expected, found = Interpreter(before).run(inputs), Interpreter(after).run(inputs)
    assert list(found) == list(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5, err_msg=name)


def _random(rng: np.random.Generator, shape: tuple[int, ...], real: bool) -> Array:
    if real:
        return rng.normal(0, 3, shape).astype(np.float32)
    return rng.integers(-128, 128, shape).astype(np.int8)
