"""Random graphs over tokens compute the same on every target, in float and in int8."""

from __future__ import annotations

import random

import numpy as np
import pytest

import qglow
from qglow.core.types import Array
from qglow.graph.graph import Graph
from tests.fuzzing import examples, seed_of
from tests.runtimes import NATIVE
from tests.unit.graph.random_tokens import random_tokens


def drawn(number: int) -> Graph:
    return random_tokens(random.Random(seed_of(f"tokens {number}")))


def drawn_inputs(graph: Graph, seed: int) -> dict[str, Array]:
    numbers = np.random.default_rng(seed)
    return {v.name: numbers.normal(size=v.type.shape).astype(np.float32) for v in graph.inputs}


def assert_alike(model: qglow.Model | qglow.QuantizedModel, feeds: dict[str, Array]) -> None:
    """All targets are close to the reference; those that fuse multiply-adds in sums of floats are equal."""
    wanted = model.compile(isa="reference")(feeds)
    equal: dict[str, Array] = {}
    for target in NATIVE:
        found = model.compile(isa=target.name, threads=1)(feeds)
        for name, array in wanted.items():
            scale = max(float(np.abs(array).max()), 1e-3)
            np.testing.assert_allclose(
                found[name], array, 1e-3, 1e-4 * scale, err_msg=f"{target.name}: {name}"
            )
            if target.has_fma:
                first = equal.setdefault(name, found[name])
                np.testing.assert_array_equal(found[name], first, f"{target.name}: {name}")


@pytest.mark.parametrize("number", range(examples(24)))
def test_float_programs_compute_what_the_reference_does(number: int) -> None:
    graph = drawn(number)
    assert_alike(qglow.load_model(graph), drawn_inputs(graph, 0))


@pytest.mark.parametrize("number", range(examples(12)))
def test_int8_programs_compute_what_the_reference_does(number: int) -> None:
    graph = drawn(number)
    model, samples = qglow.load_model(graph), [drawn_inputs(graph, seed) for seed in range(3)]
    assert_alike(model.quantize(model.profile(samples), check=False, repair=False), samples[0])
