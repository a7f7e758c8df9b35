"""Real models on their way through the packages, each stage done once a session."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from qglow.core.files import write_atomically
from qglow.core.types import Array
from qglow.graph.graph import Graph
from qglow.importer import import_model
from qglow.passes.pipeline import canonicalize
from qglow.profiling.datasets import open_data
from qglow.profiling.profile import ModelReference, Profile
from qglow.profiling.profiler import profile as run_profile
from qglow.profiling.samples import InputSpec, Sample, batches
from qglow.quantization.pipeline import QuantizedGraph, quantize_with
from qglow.recipe import load_recipe
from qglow.recipe.loading import parse_recipe
from qglow.recipe.schema import Recipe
from qglow.targets.x86.isas import AVX512_VBMI, AVX512_VNNI
from qglow.toolchain import CompiledEngine
from tests import runtimes
from tests.session import shared
from tests.zoo import REPOSITORY, zoo_model, zoo_path

_RARELY_DIFFERENT = AVX512_VNNI if AVX512_VBMI in runtimes.NATIVE else None
"""Of two ISAs that differ in tables alone, which problem suites run on both, real models take the later."""
HOST = [isa.name for isa in runtimes.NATIVE if isa is not _RARELY_DIFFERENT]
RUNNABLE = [isa.name for isa in runtimes.RUNNABLE if isa is not _RARELY_DIFFERENT]
"""ISAs whose code this host runs, AMX by emulation where it has no AMX."""
WITH_FMA = [name for name in HOST if runtimes.machine(name).has_fma]


@dataclass(frozen=True)
class ZooModel:
    """A model, and the data that its profile is taken from.

    `data` is a path in the zoo with an optional mapping of arrays, None for random inputs. `select`
    picks few samples for calibration; the others are what tests feed.
    """

    name: str
    data: str | None
    select: str = ""
    fed: str = ""
    batches: tuple[int, ...] = (1, 4)


MODELS = {
    model.name: model
    for model in (
        ZooModel("digits", "calib.npz", ":64", "100:"),
        ZooModel("cifar10_resnet20", "data/cifar10.npz[input=x_calib,label=y_calib]", ":32", "40:"),
        ZooModel("mlkws_ds_cnn_l", "data/speech_commands_350.npz", "::10", "1::10"),
        ZooModel("mymodel", None, batches=(3,)),
        ZooModel("squeezenet1.1", "data/imagenet_sample", "::100", "1::100"),
        ZooModel("mobilenetv2_tin202", "data/tin202/calib", "::60", "1::60"),
        ZooModel("resnet50v2s3_tin202", "data/tin202/calib", "::60", "1::60"),
        ZooModel("squeezenet1.1_caffe", "data/imagenet_sample", "::100", "1::100", batches=(1,)),
        ZooModel("mobilenet_v1_0.25_224", "data/imagenet_sample", "::100", "1::100", batches=(1,)),
        ZooModel("cifar10_resnet32", "data/cifar10.npz[input=x_calib,label=y_calib]", ":32", "40:", (1,)),
        ZooModel("mlperftiny_resnet8", "data/cifar10.npz[input=x_calib,label=y_calib]", ":32", "40:"),
        ZooModel("mlperftiny_vww96", "data/coco256/calib", "::10", "1::10"),
        ZooModel("mlperftiny_kws_dscnn", "data/kws01_mfcc.npz", "::20", "1::20"),
        ZooModel("mlperftiny_ad01", None),
        ZooModel("mlkws_dnn_l", "data/speech_commands_350.npz", "::10", "1::10"),
        ZooModel("mnist_8", "data/mnist_t10k.npz", "::200", "1::200", batches=(1,)),
        ZooModel("yolox_nano", "data/coco256/calib", "::20", "1::20", batches=(1,)),
        ZooModel("fastestdet", "data/coco256/calib", "::20", "1::20", batches=(1,)),
        ZooModel("deeplabv3_mnv2_voc", "data/coco256/calib", "::50", "1::50", batches=(1,)),
        ZooModel("super_resolution_10", "data/imagenet_sample", "::200", "1::200", batches=(1,)),
        ZooModel("unlabelled/ultraface_rfb320", "data/coco256/calib", "::20", "1::20", batches=(1,)),
        ZooModel("unlabelled/yunet_n_320", "data/coco256/calib", "::20", "1::20", batches=(1,)),
    )
}
THOROUGH = tuple(MODELS)[:7]
"""Those that every test runs on; the others add topologies, and take part where these matter."""

BASIC = ("digits", "cifar10_resnet20", "mlkws_ds_cnn_l", "mymodel")
"""Small models, which CI runs in every way."""
OF_A_KIND = (
    "squeezenet1.1",
    "mobilenetv2_tin202",
    "mobilenet_v1_0.25_224",
    "mlperftiny_resnet8",
    "mlperftiny_vww96",
    "mlperftiny_kws_dscnn",
    "mlperftiny_ad01",
    "mlkws_dnn_l",
    "mnist_8",
    "fastestdet",
    "unlabelled/yunet_n_320",
)
"""Models that CI runs one at a time on the best instruction set."""


def is_sweep(name: str, batch: int | None, isa: str | None) -> bool:
    """Whether a case of a real model repeats, at length, what others of its kind show."""
    if name not in MODELS or name in BASIC:
        return False
    if name not in OF_A_KIND or batch not in (None, MODELS[name].batches[0]):
        return True
    return isa is not None and isa not in HOST[-1:]


def _cases(names: Iterable[str]) -> list[object]:
    return [
        pytest.param(name, batch, id=f"{name}-{batch}", marks=_marks(name))
        for name in names
        for batch in MODELS[name].batches
    ]


def _names(names: Iterable[str]) -> list[object]:
    return [pytest.param(name, marks=_marks(name)) for name in names]


def _marks(name: str) -> list[pytest.MarkDecorator]:
    return [] if name == "digits" else [pytest.mark.slow]


CASES, ALL_CASES = _cases(THOROUGH), _cases(MODELS)
NAMES, ALL_NAMES = _names(THOROUGH), _names(MODELS)


@cache
def float_graph(name: str, batch: int) -> Graph:
    """The canonical graph. Callers leave it as it is."""
    return canonicalize(import_model(zoo_model(name), default_batch=batch).graph)


@cache
def recipe(name: str) -> Recipe:
    """The shipped recipe of the model; the default one where there is none."""
    path = REPOSITORY / "recipes" / f"{Path(name).name}.yaml"
    return load_recipe(path) if path.exists() else Recipe()


@cache
def profile(name: str) -> Profile:
    """A profile over a few real samples, taken by the compiled engine once a session."""
    kept = shared("profiles") / f"{name.replace('/', ' ')}.pickle"
    if kept.exists():
        return cast(Profile, pickle.loads(kept.read_bytes()))
    made = _profile(name)
    write_atomically(kept, pickle.dumps(made))
    return made


def _profile(name: str) -> Profile:
    model = MODELS[name]
    engine = CompiledEngine(lambda batch: float_graph(name, batch))
    reference = ModelReference(zoo_model(name), "0" * 64)
    first = model.batches[0]
    chosen = recipe(name).preprocessing
    return run_profile(
        float_graph(name, first),
        samples(name, model.select),
        engine,
        model=reference,
        batch_size=first,
        preprocessing=chosen,
    )


def quantized(name: str, batch: int, chosen: Recipe | None = None) -> QuantizedGraph:
    """The int8 graph for a batch size, by the model's own recipe unless another is given."""
    return _quantized(name, batch, (chosen or recipe(name)).to_yaml())


@cache
def _quantized(name: str, batch: int, text: str) -> QuantizedGraph:
    profiled = profile(name)
    statistics = profiled.check_matches(float_graph(name, MODELS[name].batches[0]))
    chosen = parse_recipe(text, name)
    return quantize_with(float_graph(name, batch), statistics, profiled.samples, chosen)


def samples(name: str, select: str) -> Iterator[Sample]:
    """Samples of the model's data, random ones where there is no data."""
    model, graph = MODELS[name], float_graph(name, MODELS[name].batches[0])
    if model.data is None:
        yield from _random_samples(graph)
        return
    specs = {v.name: InputSpec(v.type.shape[1:], v.type.element.dtype) for v in graph.inputs}
    yield from open_data(_located(model.data), specs, recipe=recipe(name), select=select or None)


@cache
def inputs(name: str, batch: int) -> dict[str, Array]:
    """One batch of real samples that the profile has not seen, by input name."""
    first = islice(samples(name, MODELS[name].fed), batch)
    return next(iter(batches(first, batch))).inputs


def _random_samples(graph: Graph) -> Iterator[Sample]:
    random = np.random.default_rng(0)
    for index in range(12):
        drawn = {v.name: random.normal(size=v.type.shape[1:]).astype(np.float32) for v in graph.inputs}
        yield Sample(f"random {index}", drawn)


def _located(data: str) -> str:
    path, bracket, mapping = data.partition("[")
    found: Path = zoo_path(path) if path.startswith("data/") else REPOSITORY / "calib_data" / path
    return f"{found}{bracket}{mapping}"
