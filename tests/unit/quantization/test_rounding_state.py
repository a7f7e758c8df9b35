"""Rounding that is interrupted or short of time: what is kept, what is said, and that it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from qglow.core.errors import InputFileError
from qglow.core.types import Array
from qglow.graph.graph import Graph, Value
from qglow.graph.text import print_graph
from qglow.quantization.reconstruction import round_weights, rounding
from qglow.quantization.reconstruction.state import Rounded, RoundingState, load_rounding
from tests.unit.quantization.test_reconstruction import quantized, run

ABOUT = {"model": "ab" * 32, "calibration data": "cd" * 32}


def after(calls: int) -> Callable[[], bool]:
    """Time that is up after so many looks at the clock."""
    left = iter(range(calls))
    return lambda: next(left, None) is None


def stops(calls: int) -> Callable[[int], None]:
    """Progress whose reader interrupts with the `calls`-th node."""
    left = iter(range(calls))

    def advance(nodes: int) -> None:
        if nodes and next(left, None) is None:
            raise KeyboardInterrupt

    return advance


def text(state: RoundingState | None = None, **options: bool) -> str:
    return constants(round_weights(quantized(), run, 30, state=state, **options).graph)


def constants(graph: Graph) -> str:
    return print_graph(graph) + "".join(str(v.data.tolist()) for v in graph.constants() if v.data is not None)


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("calls", [0, 1, 3])
def test_interrupted_it_goes_on_to_the_same_integers(tmp_path: Path, learn: bool, calls: int) -> None:
    path = tmp_path / "rounding.npz"
    with pytest.raises(KeyboardInterrupt):
        round_weights(
            quantized(), run, 30, learn=learn, advance=stops(calls), state=load_rounding(path, ABOUT)
        )
    state = load_rounding(path, ABOUT)
    assert sum(result.learned == learn for result in state.results.values()) == calls + 1
    assert text(state, learn=learn) == text(learn=learn)


def test_what_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rounding.npz"
    whole = text(load_rounding(path, ABOUT), learn=True)

    def never(graph: Graph, values: Sequence[Value]) -> Iterator[Mapping[Value, Array]]:
        raise AssertionError("the data is looked at again")

    done: list[int] = []
    again = round_weights(
        quantized(), never, 30, learn=True, state=load_rounding(path, ABOUT), advance=done.append
    )
    assert constants(again.graph) == whole
    assert sum(done) == 4


def test_layers_that_time_does_not_reach_keep_what_they_have_and_are_named() -> None:
    # One look before the data, 30 runs, 4 nodes with feedback, one that learns.
    found = round_weights(quantized(), run, 30, learn=True, out_of_time=after(36))
    state = RoundingState()
    round_weights(quantized(), run, 30, state=state)
    nodes = [node for node in found.graph.nodes if node.name in state.results]
    late = [e for e in found.report.log if e.pass_name == "round-weights" and not e.applied]
    assert [entry.where for entry in late] == [node.name for node in nodes[1:]]
    assert all("keep its feedback of errors, unlearned" in entry.what for entry in late)
    for node in nodes[1:]:
        weights = node.inputs[1]
        assert weights is not None and weights.data is not None
        assert np.array_equal(weights.data, state.results[node.name].weights)
    (warning,) = found.report.warnings
    assert warning.startswith(f"time for rounding was up before 3 of 4 nodes: {nodes[1].name}, ")


@pytest.mark.parametrize("looks", [0, 20])
def test_no_time_at_all_leaves_every_weight_at_the_nearest_integer(looks: int) -> None:
    before = quantized()
    found = round_weights(before, run, 30, learn=True, out_of_time=after(looks))
    assert constants(found.graph) == constants(before.graph)
    assert "before 4 of 4 nodes, 4 of them at the nearest integers" in found.report.warnings[0]


def test_a_larger_budget_goes_on_from_a_smaller_one(tmp_path: Path) -> None:
    path = tmp_path / "rounding.npz"
    state = load_rounding(path, ABOUT)
    round_weights(quantized(), run, 30, learn=True, out_of_time=after(36), state=state)
    assert text(load_rounding(path, ABOUT), learn=True) == text(learn=True)


def test_a_node_too_large_to_learn_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qglow.quantization.reconstruction.learned.MULTIPLY_ADDS", 1.0)
    found = round_weights(quantized(), run, 30, learn=True)
    told = [e.what for e in found.report.log if e.pass_name == "round-weights"]
    assert all(what.endswith("too large to learn") for what in told)
    assert constants(found.graph) == text()


def kept(path: Path) -> RoundingState:
    state = RoundingState(path, ABOUT)
    weights, bias = np.array([[1, -127]], np.int8), np.array([5, 6], np.int32)
    state.add("dense", Rounded(weights, bias, 1, "did it", True))
    return state


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "rounding.npz"
    kept(path).save()
    found = load_rounding(path, ABOUT).results["dense"]
    assert found.weights.tolist() == [[1, -127]] and found.bias.tolist() == [5, 6]
    assert (found.axis, found.description, found.learned) == (1, "did it", True)


def test_it_is_written_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rounding.npz"
    kept(path)
    assert not path.exists()
    monkeypatch.setattr("qglow.quantization.reconstruction.state.SECONDS_BETWEEN_WRITES", 0.0)
    kept(path)
    assert path.exists()


def test_a_state_of_something_else_is_refused_by_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "rounding.npz"
    kept(path).save()
    with pytest.raises(InputFileError, match=r"another calibration data.*`rounding_state`"):
        load_rounding(path, ABOUT | {"calibration data": "ef" * 32})


@pytest.mark.parametrize("content", [b"", b"no archive", None])
def test_a_damaged_state_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "rounding.npz"
    kept(path).save()
    path.write_bytes(path.read_bytes()[:-40] if content is None else content)
    with pytest.raises(InputFileError, match="damaged: remove it"):
        load_rounding(path, ABOUT)


def test_weights_of_another_shape_are_refused() -> None:
    before = quantized()
    name = next(node.name for node in rounding.rounded_nodes(before.graph))
    weights, bias = np.zeros((1, 2), np.int8), np.zeros(2, np.int32)
    state = RoundingState(Path("r.npz"), {}, {name: Rounded(weights, bias, 1, "", True)})
    with pytest.raises(InputFileError, match=f"other weights for node '{name}'"):
        round_weights(before, run, 30, state=RoundingState(None, {}, dict(state.results)))
