"""Metrics of zoo models that need more than labels, as `qglow compare --metric` takes them.

    qglow compare fastestdet.int8 --data ../shared/zoo/data/coco256/val \
        --metric scripts.benchmarks.tasks.zoo_metrics:fastestdet_map50

Samples are photos of data/coco256 (detection, people) or data/imagenet_sample (super-resolution) in
the folder of models and data, known by their file's name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

from qglow.core.types import Array
from qglow.metrics import Boxes, box_f1, map50
from scripts.benchmarks.models.evaluated import ZOO
from scripts.benchmarks.tasks.decoders import fastestdet_boxes, ultraface_boxes, yolox_boxes, yunet_boxes

Outputs = Mapping[str, Array]
PERSON, SMALLEST_PERSON = 0, 0.005
PATCH, FACTOR = 85, 3


def yolox_map50(outputs: Outputs, keys: Sequence[str]) -> float:
    """mAP50 of YOLOX, in per cent."""
    return _map50(outputs, keys, yolox_boxes)


def fastestdet_map50(outputs: Outputs, keys: Sequence[str]) -> float:
    """mAP50 of FastestDet, in per cent."""
    return _map50(outputs, keys, fastestdet_boxes)


def _map50(outputs: Outputs, keys: Sequence[str], decode: Callable[[Array, tuple[int, int]], Boxes]) -> float:
    truth = [true_boxes(key) for key in keys]
    true = [Boxes.true(boxes[:, 1:], boxes[:, 0].astype(int)) for boxes in truth]
    rows = _only(outputs)
    found = [decode(rows[i : i + 1], photo_size(key)) for i, key in enumerate(keys)]
    return map50(found, true)


def ultraface_agreement(outputs: Outputs, expected: Outputs) -> float:
    """F1 of the faces that UltraFace and its float model find, in per cent."""
    return box_f1(_ultraface(outputs), _ultraface(expected))


def yunet_agreement(outputs: Outputs, expected: Outputs) -> float:
    """F1 of the faces that YuNet and its float model find, in per cent."""
    return box_f1(_yunet(outputs), _yunet(expected))


def _ultraface(outputs: Outputs) -> list[Boxes]:
    scores, corners = outputs["scores"], outputs["boxes"]
    return [ultraface_boxes(scores[i : i + 1], corners[i : i + 1]) for i in range(len(scores))]


def _yunet(outputs: Outputs) -> list[Boxes]:
    groups = [[outputs[f"{name}_{stride}"] for stride in (8, 16, 32)] for name in ("cls", "obj", "bbox")]
    return [
        yunet_boxes(*([array[i : i + 1] for array in group] for group in groups))
        for i in range(len(groups[0][0]))
    ]


def person_accuracy(outputs: Outputs, keys: Sequence[str]) -> float:
    """How often class 1 wins where a person is to be seen, and class 0 elsewhere, in per cent."""
    people = [largest_person(key) > SMALLEST_PERSON for key in keys]
    return 100.0 * float(np.mean(_only(outputs).argmax(1) == np.array(people, int)))


def upscaled_psnr(outputs: Outputs, keys: Sequence[str]) -> float:
    """Mean over the patches, in dB, of luminance 0..1 clamped and without the outer pixels of a step."""
    side, figures = PATCH * FACTOR, []
    for key, out in zip(keys, _only(outputs), strict=True):
        found = np.clip(out[0, :side, :side], 0.0, 1.0)
        error = (found - luminance(key))[FACTOR:-FACTOR, FACTOR:-FACTOR]
        figures.append(-10.0 * np.log10(np.mean(error**2)))
    return float(np.mean(figures))


def _only(outputs: Outputs) -> Array:
    """The one output."""
    (array,) = outputs.values()
    return array


@cache
def _photos() -> dict[str, dict[str, list[list[float]]]]:
    """By file name: the size (width, height) of a photo and its boxes (class, x1, y1, x2, y2)."""
    listed = json.loads((ZOO / "data/coco256/labels.json").read_text(encoding="utf-8"))
    return {Path(photo["file"]).name: photo for photos in listed.values() for photo in photos}


def photo_size(key: str) -> tuple[int, int]:
    """(width, height) of a photo."""
    width, height = _photos()[Path(key).name]["size"]
    return width, height  # type: ignore[return-value]


def true_boxes(key: str) -> Array:
    """The boxes of a photo, [N, 5]: class, x1, y1, x2, y2."""
    return np.array(_photos()[Path(key).name]["boxes"], np.float64).reshape(-1, 5)


def largest_person(key: str) -> float:
    """Share of the photo that its largest box of a person covers; 0 without one."""
    boxes = true_boxes(key)
    people = boxes[boxes[:, 0] == PERSON]
    width, height = photo_size(key)
    areas = (people[:, 3] - people[:, 1]) * (people[:, 4] - people[:, 2]) / (width * height)
    return float(areas.max(initial=0.0))


def luminance(key: str) -> Array:
    """The centre of a photo, as large as a patch becomes, 0..1."""
    side = PATCH * FACTOR
    with Image.open(ZOO / "data/imagenet_sample" / key) as image:
        gray = image.convert("L")
    left, top = (gray.width - side) // 2, (gray.height - side) // 2
    values: Array = np.asarray(gray.crop((left, top, left + side, top + side)), np.float64) / 255.0
    return values
