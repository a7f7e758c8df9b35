"""Other people's models: NAME.onnx with a few inputs in NAME.inputs.npz, in a folder that QGLOW_WILD names
(default ../shared/wild beside the checkout).

A key of NAME.inputs.npz is `K|input` or `K|input|type`: the array of input for sample K, batch axis included.
The type tells how its bytes become floats: `u8` is x / 255, `u8s` x / 127.5 - 1, `u8n` (x / 255 - mean) / std
with ImageNet's mean and std of each channel, axis 1.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from qglow.core.batch import common_batch
from qglow.core.errors import DataError, InputFileError
from qglow.core.types import Array
from scripts.benchmarks.models.evaluated import REPOSITORY, EvaluatedModel, Split

WILD = Path(os.environ.get("QGLOW_WILD", REPOSITORY.parent / "shared" / "wild"))
_MEAN = np.array([0.485, 0.456, 0.406], np.float32)[:, None, None]
_STD = np.array([0.229, 0.224, 0.225], np.float32)[:, None, None]


def wild_names(folder: Path = WILD) -> tuple[str, ...]:
    """Names of the models that have inputs; none without the folder."""
    return tuple(sorted(path.name.removesuffix(".inputs.npz") for path in folder.glob("*.inputs.npz")))


def wild_model(name: str, folder: Path) -> EvaluatedModel:
    """A model of the folder, calibrated and judged on its own samples, which are written into `folder`.

    Its inputs have the shapes of the first sample; samples of other shapes are left out. Raises
    InputFileError for an unknown name, DataError for inputs that cannot be read.
    """
    if name not in wild_names():
        raise InputFileError(f"{WILD} has no {name}.inputs.npz; QGLOW_WILD names the folder")
    first, *others = wild_samples(WILD / f"{name}.inputs.npz")
    shapes = {key: array.shape for key, array in first.items()}
    alike = [other for other in others if {key: a.shape for key, a in other.items()} == shapes]
    data = folder / f"{name}.npz"
    np.savez(data, **joined_samples((first, *alike)))  # type: ignore[arg-type]
    split = Split(str(data))
    return EvaluatedModel(name, WILD, f"{name}.onnx", split, split, shapes)


def joined_samples(samples: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Samples of equal shapes along the first axis; inputs without a batch there get an axis of samples."""
    batched = common_batch({name: array.shape for name, array in samples[0].items()}) is not None
    parts = {name: [sample[name] for sample in samples] for name in samples[0]}
    return {
        name: np.concatenate(arrays) if batched or arrays[0].shape[:1] == (1,) else np.stack(arrays)
        for name, arrays in parts.items()
    }


def wild_samples(path: Path) -> list[dict[str, Array]]:
    """The samples of a file NAME.inputs.npz, in order: arrays by input name, batch axis included.

    Raises DataError for a file that cannot be read, has no samples, or lacks an input in one of them.
    """
    samples: dict[int, dict[str, Array]] = {}
    try:
        with np.load(path, allow_pickle=False) as arrays:
            for key in arrays:
                place, name, *kind = key.split("|")
                samples.setdefault(int(place), {})[name] = _as_input(arrays[key], *kind)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not inputs of a model by keys like '0|input|u8': {error}") from error
    if not samples or len({frozenset(sample) for sample in samples.values()}) != 1:
        raise DataError(f"{path}: samples have no inputs, or not the same")
    return [samples[place] for place in sorted(samples)]


def _as_input(array: Array, kind: str | None = None) -> Array:
    """The array as the model takes it. Raises KeyError for an unknown type."""
    if kind is None:
        return array
    real = array.astype(np.float32)
    forms = {
        "u8": lambda: real / np.float32(255.0),
        "u8s": lambda: real / np.float32(127.5) - np.float32(1.0),
        "u8n": lambda: (real / np.float32(255.0) - _MEAN) / _STD,
    }
    return np.asarray(forms[kind]())
