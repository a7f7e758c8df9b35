"""The compiled engine gives one profile file, byte for byte, however the data comes to it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from qglow.profiling.profile import ModelReference, Profile, merge
from qglow.profiling.profile_file import load, save
from qglow.profiling.profiler import profile as run_profile
from qglow.profiling.samples import Sample
from qglow.toolchain import CompiledEngine, CompileOptions
from tests.end_to_end.zoo_flow import MODELS, WITH_FMA, float_graph, recipe, samples
from tests.zoo import zoo_model

pytestmark = pytest.mark.skipif(not WITH_FMA, reason="the host has no fused multiply-add")

COUNT = 9
"""Samples: a whole number of no batch that is tried but the first."""
NAMES = [
    "digits",
    *(
        pytest.param(n, marks=pytest.mark.slow)
        for n in ("cifar10_resnet20", "mlkws_ds_cnn_l", "squeezenet1.1")
    ),
]


@cache
def data(name: str) -> tuple[Sample, ...]:
    return tuple(islice(samples(name, MODELS[name].select), COUNT))


def profiled(name: str, fed: Sequence[Sample], batch: int = 1, isa: str | None = None) -> Profile:
    runner = CompiledEngine(lambda size: float_graph(name, size), CompileOptions(isa=isa or WITH_FMA[-1]))
    return run_profile(
        float_graph(name, 1),
        fed,
        runner,
        model=ModelReference(zoo_model(name), "0" * 64),
        batch_size=batch,
        preprocessing=recipe(name).preprocessing,
    )


def written(profile: Profile, folder: Path) -> bytes:
    path = folder / "profile.yaml"
    save(profile, path)
    return path.read_bytes()


@cache
def first(name: str) -> Profile:
    """One sample after the other, on the best ISA."""
    return profiled(name, data(name))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("batch", [4, 7])
def test_batch_size_leaves_no_trace(name: str, batch: int, tmp_path: Path) -> None:
    assert written(profiled(name, data(name), batch), tmp_path) == written(first(name), tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_order_leaves_no_trace(name: str, tmp_path: Path) -> None:
    order = np.random.default_rng(3).permutation(COUNT)
    shuffled = [data(name)[index] for index in order]
    assert written(profiled(name, shuffled, 4), tmp_path) == written(first(name), tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_shards_leave_no_trace(name: str, tmp_path: Path) -> None:
    """Two parts, written and read again, add up to the whole."""
    parts = []
    for number, part in enumerate((data(name)[:3], data(name)[3:])):
        path = tmp_path / f"part{number}.yaml"
        save(profiled(name, part, 3), path)
        parts.append(load(path))
    assert written(merge(parts[::-1]), tmp_path) == written(first(name), tmp_path)


@pytest.mark.skipif(len(WITH_FMA) < 2, reason="the host has no two ISAs with fused multiply-add")
@pytest.mark.parametrize("name", NAMES)
def test_isa_leaves_no_trace(name: str, tmp_path: Path) -> None:
    for isa in WITH_FMA[:-1]:
        assert written(profiled(name, data(name), 4, isa), tmp_path) == written(first(name), tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_other_data_does_leave_a_trace(name: str, tmp_path: Path) -> None:
    assert written(profiled(name, data(name)[1:]), tmp_path) != written(first(name), tmp_path)
