"""Models over sequences, whose data is no plain file of inputs: it is written as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from qglow.core.errors import InputFileError
from qglow.core.types import Array
from scripts.benchmarks.models.evaluated import ZOO, EvaluatedModel, Split
from scripts.benchmarks.models.wild import WILD

_PLATES = 300
"""Licence plates that are evaluated; those after them calibrate."""
_STORIES = 64
"""Stories that calibrate; those after them are evaluated."""


def stories(folder: Path) -> EvaluatedModel:
    """The llama over stories: tokens [N, 128], labelled. Raises InputFileError without the data."""
    words = _array(ZOO / "data/tinystories_tok512.npz", "tokens").astype(np.int64)
    tokens, following = words[:, :-1], words[_STORIES:, 1:]
    evaluation = {"tokens": tokens[_STORIES:], "label": following}
    splits = _splits(folder, {"tokens": tokens[:_STORIES]}, evaluation)
    return EvaluatedModel(
        "llama_stories260k", ZOO, "models/llama_stories260k.onnx", *splits, {"tokens": (1, 128)}
    )


def plates(folder: Path) -> EvaluatedModel:
    """The reader of licence plates: images [N, 3, 24, 94]. Raises InputFileError without the data."""
    pixels = _array(ZOO / "data/lpr_ccpd.npz", "x").transpose(0, 3, 1, 2).astype(np.float32)
    images = (pixels - np.float32(127.5)) / np.float32(128.0)
    splits = _splits(folder, {"input": images[_PLATES:]}, {"input": images[:_PLATES]})
    return EvaluatedModel("lprnet", ZOO, "models/lprnet.onnx", *splits)


def news(folder: Path) -> EvaluatedModel:
    """The classifier of news: tokens and mask [N, 56], labelled. Raises InputFileError without the data."""
    path = WILD / "agnews.npz"
    halves: list[Mapping[str, Array]] = []
    for prefix in ("calib_", ""):
        names = ("input_ids", "attention_mask")
        inputs = {name: _array(path, prefix + name).astype(np.int64) for name in names}
        halves.append({**inputs, "token_type_ids": np.zeros_like(inputs["input_ids"])})
    shapes = {name: (1, *array.shape[1:]) for name, array in halves[0].items()}
    halves[1] = {**halves[1], "label": _array(path, "label").astype(np.int64)}
    return EvaluatedModel("bert_agnews", WILD, "bert_agnews.onnx", *_splits(folder, *halves), shapes)


SEQUENCE_MODELS: dict[str, Callable[[Path], EvaluatedModel]] = {
    "llama_stories260k": stories,
    "lprnet": plates,
    "bert_agnews": news,
}
"""Writers of the data into a folder, by the name of the model."""


def _splits(
    folder: Path, calibration: Mapping[str, Array], evaluation: Mapping[str, Array]
) -> tuple[Split, Split]:
    found = []
    for name, arrays in (("calibration", calibration), ("evaluation", evaluation)):
        path = folder / f"{name}.npz"
        np.savez(path, **arrays)  # type: ignore[arg-type]
        found.append(Split(str(path)))
    return found[0], found[1]


def _array(path: Path, name: str) -> Array:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found: Array = arrays[name]
            return found
    except (OSError, KeyError, ValueError) as error:
        raise InputFileError(f"{path} has no array '{name}': {error}") from error
