"""Profiling a graph: what is probed, and that only the data matters."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from qglow.core.errors import DataError, ProfileError
from qglow.graph.ops.quantize import QuantizationProfile
from qglow.graph.verifier import verify_graph
from qglow.profiling.engine import InterpreterEngine
from qglow.profiling.nodes import insert_profile_nodes, profiled_values
from qglow.profiling.profile import ModelReference, merge
from qglow.profiling.profile_file import to_yaml
from qglow.profiling.profiler import profile
from tests.unit.profiling.networks import MODEL, profile_of, residual_network, samples


def text(found: object) -> str:
    return to_yaml(found, Path("."))  # type: ignore[arg-type]


def test_every_float_value_gets_one_probe_and_the_graph_stays() -> None:
    graph = residual_network()
    before = len(graph.nodes)
    probed = insert_profile_nodes(graph)
    verify_graph(probed, "test")
    probes = [node for node in probed.nodes if isinstance(node.operator, QuantizationProfile)]
    names = [node.inputs[0].name for node in probes if node.inputs[0] is not None]
    assert names == ["x", "stem", "depthwise", "pointwise", "total", "mean", "flat", "y"]
    assert len(graph.nodes) == before


def test_file_is_the_same_for_shuffled_samples_and_merged_shards() -> None:
    whole = text(profile_of(12))
    shuffled = samples(12)
    random.Random(3).shuffle(shuffled)
    graph = residual_network()

    def run(part: list) -> object:  # type: ignore[type-arg]
        return profile(graph, part, InterpreterEngine(residual_network), model=MODEL)

    assert text(run(shuffled)) == whole
    assert text(merge([run(shuffled[:5]), run(shuffled[5:])])) == whole  # type: ignore[list-item]


def test_batches_of_any_size_see_the_same_samples() -> None:
    whole = profile_of(7)
    for batch_size in (3, 7):
        found = profile_of(7, batch_size)
        assert (found.samples, found.data.hex, list(found.values)) == (7, whole.data.hex, list(whole.values))
        for name, statistics in found.by_name().items():
            assert statistics.total == whole.by_name()[name].total
            assert statistics.high == pytest.approx(whole.by_name()[name].high, rel=1e-5)


def test_progress_counts_samples() -> None:
    done: list[int] = []
    engine = InterpreterEngine(residual_network)
    profile(residual_network(), samples(5), engine, model=MODEL, batch_size=2, advance=done.append)
    assert done == [2, 2, 1]


def test_no_samples_is_an_error() -> None:
    with pytest.raises(DataError, match="no sample"):
        profile(residual_network(), [], InterpreterEngine(residual_network), model=MODEL)


def test_a_profile_fits_its_own_graph_whatever_the_names() -> None:
    found = profile_of(2)
    graph = residual_network()
    for value in graph.values():
        value.name = f"renamed_{value.name}"
    assert list(found.check_matches(graph)) == [f"renamed_{v}" for v in found.by_name()]
    assert len(profiled_values(graph)) == len(found.values)


def test_a_changed_weight_is_a_stale_profile_that_names_what_differs() -> None:
    graph = residual_network()
    value = graph.value("w2")
    assert value.data is not None
    value.data = value.data + 1
    with pytest.raises(ProfileError, match=r"stale.*'pointwise', 'total', 'mean' and 2 more values"):
        profile_of(2).check_matches(graph)


def test_a_profile_of_another_model_is_refused() -> None:
    with pytest.raises(ProfileError, match="stale"):
        profile_of(2).check_matches(residual_network(seed=9))


def test_merging_refuses_another_model_or_shape() -> None:
    first = profile_of(2)
    other = profile(
        residual_network(),
        samples(2),
        InterpreterEngine(residual_network),
        model=ModelReference(Path("model.onnx"), "00" * 32),
        shapes={"x": (1, 3, 7, 7)},
    )
    with pytest.raises(ProfileError, match=r"number 2 has another model \(sha256\) and input shapes"):
        merge([first, other])
    with pytest.raises(ProfileError, match="no profile"):
        merge([])
