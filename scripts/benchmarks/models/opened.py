"""Every model that agreement and speed are measured on: those with data, and topologies with drawn weights.

What has no data of its own runs on seeded random inputs: agreement needs values, not meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from qglow import load_model
from qglow.core.errors import InputFileError
from qglow.core.types import Array
from scripts.benchmarks.models.drawn import SAMPLES, write_network
from scripts.benchmarks.models.evaluated import ZOO, EvaluatedModel, Split, check_names
from scripts.benchmarks.models.labelled import MODELS, TASK_MODELS
from scripts.benchmarks.models.light_networks import NETWORKS, light_network
from scripts.benchmarks.models.sequences import SEQUENCE_MODELS
from scripts.benchmarks.models.timing_networks import NETWORKS as TIMING_NETWORKS
from scripts.benchmarks.models.timing_networks import timing_network
from scripts.benchmarks.models.wild import wild_model, wild_names

WITHOUT_DATA = ("mlperftiny_ad01",)
LIGHT = {f"light_{name}": name for name in NETWORKS}
NAMES = (*(model.name for model in (*MODELS, *TASK_MODELS)), *WITHOUT_DATA, *LIGHT)
"""All of them, in the order of the table."""
TIMED_NAMES = (*NAMES, *TIMING_NETWORKS)
"""Those that speed is measured on: with networks whose answers mean nothing."""


def all_names() -> tuple[str, ...]:
    """TIMED_NAMES, and what else lies in the folder of models: that runs on random inputs."""
    found = {path.stem for path in (ZOO / "models").rglob("*.onnx")}
    return (*TIMED_NAMES, *sorted(found - set(TIMED_NAMES)))


def found_names() -> tuple[str, ...]:
    """The example, and every model that lies in the folders of the zoo and of other people's models."""
    lying = [path.stem for path in sorted((ZOO / "models").rglob("*.onnx"))]
    known = [model.name for model in (*MODELS, *TASK_MODELS) if model.path.exists()]
    return tuple(dict.fromkeys([*known, *lying, *wild_names()]))


def opened_models(
    names: Sequence[str], known: Sequence[str] = NAMES, drawn: int = SAMPLES // 2
) -> Iterator[EvaluatedModel]:
    """The models of these names in the order of `known`; all of those for no names.

    drawn: samples to evaluate models of the folders on that have no data. Files that are made for a model
    exist until the next is asked for. Raises UsageError.
    """
    check_names(names, known)
    ready = {model.name: model for model in (*MODELS, *TASK_MODELS)}
    for name in known:
        if names and name not in names:
            continue
        if name in ready:
            yield ready[name]
            continue
        with TemporaryDirectory(prefix="qglow-drawn-") as folder:
            yield _with_written_data(name, Path(folder), drawn)


def has_drawn_inputs(name: str) -> bool:
    """Whether a model of the folders runs on random inputs, because there is no data for it."""
    with_data = {model.name for model in (*MODELS, *TASK_MODELS)} | set(SEQUENCE_MODELS) | set(wild_names())
    return name not in with_data


def _with_written_data(name: str, folder: Path, drawn: int) -> EvaluatedModel:
    if name in SEQUENCE_MODELS:
        return SEQUENCE_MODELS[name](folder)
    if name in wild_names():
        return wild_model(name, folder)
    return _drawn(name, folder, drawn)


def _drawn(name: str, folder: Path, drawn: int) -> EvaluatedModel:
    """A model whose data, or that itself, is drawn at random."""
    if name in LIGHT:
        path, data = write_network(light_network(LIGHT[name]), name, folder)
        root, file = folder, path.name
    elif name in TIMING_NETWORKS:
        path, data = write_network(timing_network(name), name, folder)
        root, file = folder, path.name
    else:
        root, file = ZOO, file_in_zoo(name)
        data = _draw_inputs(root / file, folder / f"{name}.npz", SAMPLES // 2 + drawn)
    parts = Split(str(data), f":{SAMPLES // 2}"), Split(str(data), f"{SAMPLES // 2}:")
    return EvaluatedModel(name, root, file, *parts)


def file_in_zoo(name: str) -> str:
    """Where a model of the folder lies in it. Raises InputFileError."""
    for path in sorted((ZOO / "models").rglob(f"{name}.onnx")):
        return str(path.relative_to(ZOO))
    raise InputFileError(
        f"{ZOO / 'models'} has no {name}.onnx; QGLOW_ZOO names the folder with models and data"
    )


def _draw_inputs(model: Path, data: Path, samples: int) -> Path:
    """Normal values, and integers below 32, which are tokens of any vocabulary; batches of whole samples.

    Those to calibrate on are the same for any number of samples.
    """
    random = np.random.default_rng(7)
    kinds = load_model(model).inputs
    parts: dict[str, list[Array]] = {name: [] for name in kinds}
    for count in (SAMPLES // 2, samples - SAMPLES // 2):
        for name, kind in kinds.items():
            shape, dtype = (count, *kind.shape[1:]), kind.element.dtype
            real = np.issubdtype(dtype, np.floating)
            drawn = random.standard_normal(shape, np.float32) if real else random.integers(0, 32, shape)
            parts[name].append(drawn.astype(dtype))
    np.savez(data, **{name: np.concatenate(both) for name, both in parts.items()})  # type: ignore[arg-type]
    return data
