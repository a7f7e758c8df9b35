"""Every model that agreement is measured on: the labelled ones, those without labels, and nine topologies.

What has no data of its own runs on seeded random inputs: agreement needs values, not meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from evaluated_models import MODELS, ZOO, EvaluatedModel, Split
from light_networks import NETWORKS, write_light_network
from timing_networks import NETWORKS as TIMING_NETWORKS
from timing_networks import write_timing_network

from qglow import load_model
from qglow.core.errors import UsageError

_PHOTOS = (Split("data/coco256/calib", "::4"), Split("data/coco256/val"))
_LUMINANCE = (Split("data/imagenet_sample", "::50"), Split("data/imagenet_sample", "1::50"))
WITH_DATA = (
    EvaluatedModel("mlperftiny_vww96", ZOO, "models/mlperftiny_vww96.onnx", *_PHOTOS),
    EvaluatedModel("yolox_nano", ZOO, "models/yolox_nano.onnx", *_PHOTOS),
    EvaluatedModel("fastestdet", ZOO, "models/fastestdet.onnx", *_PHOTOS),
    EvaluatedModel("deeplabv3_mnv2_voc", ZOO, "models/deeplabv3_mnv2_voc.onnx", *_PHOTOS),
    EvaluatedModel("super_resolution_10", ZOO, "models/super_resolution_10.onnx", *_LUMINANCE),
    EvaluatedModel("ultraface_rfb320", ZOO, "models/unlabelled/ultraface_rfb320.onnx", *_PHOTOS),
    EvaluatedModel("yunet_n_320", ZOO, "models/unlabelled/yunet_n_320.onnx", *_PHOTOS),
)
WITHOUT_DATA = ("mlperftiny_ad01",)
LIGHT = {f"light_{name}": name for name in NETWORKS}
NAMES = (*(model.name for model in (*MODELS, *WITH_DATA)), *WITHOUT_DATA, *LIGHT)
"""All of them, in the order of the table."""
TIMED_NAMES = (*NAMES, *TIMING_NETWORKS)
"""Those that speed is measured on: with networks whose answers mean nothing."""
SAMPLES = 16


def opened_models(
    names: Sequence[str], folder: Path, known: Sequence[str] = NAMES
) -> Iterator[EvaluatedModel]:
    """The models of these names in the order of `known`; all of those for no names.

    What is made for one of them lies in `folder` until the next is asked for. Raises UsageError.
    """
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise UsageError(f"no model is called {', '.join(unknown)}; there are {', '.join(known)}")
    ready = {model.name: model for model in (*MODELS, *WITH_DATA)}
    for name in known:
        if names and name not in names:
            continue
        yield ready[name] if name in ready else _made(name, folder)
        for file in folder.iterdir():
            file.unlink()


def _made(name: str, folder: Path) -> EvaluatedModel:
    """A model whose data, or that itself, is drawn at random."""
    if name in LIGHT:
        path, data = write_light_network(LIGHT[name], folder, SAMPLES)
        root, file = folder, path.name
    elif name in TIMING_NETWORKS:
        path, data = write_timing_network(name, folder, SAMPLES)
        root, file = folder, path.name
    else:
        root, file = ZOO, f"models/{name}.onnx"
        data = _draw_inputs(root / file, folder / f"{name}.npz")
    halves = Split(str(data), f":{SAMPLES // 2}"), Split(str(data), f"{SAMPLES // 2}:")
    return EvaluatedModel(name, root, file, *halves)


def _draw_inputs(model: Path, data: Path) -> Path:
    random = np.random.default_rng(7)
    kinds = load_model(model).inputs.items()
    drawn = {n: random.standard_normal((SAMPLES, *kind.shape[1:]), np.float32) for n, kind in kinds}
    np.savez(data, **drawn)  # type: ignore[arg-type]
    return data
