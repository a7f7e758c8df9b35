"""What int8 costs in the metric of the task, for models that top-1 accuracy does not measure.

    python scripts/task_metrics.py [--models NAME ...] [--limit N] [--update-readme]

Detectors by mAP50, visual wake words by accuracy, super-resolution by PSNR, and segmentation by the
share of pixels with the float model's class, as there are no masks to measure mIoU with. Each is
measured for the float model in onnxruntime, for qglow, and for onnxruntime's static quantization by
minmax (QDQ, uint8 activations, int8 weights per channel), calibrated on the same samples.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from detection import Boxes, fastestdet_boxes, mean_average_precision, yolox_boxes
from evaluated_models import ZOO, EvaluatedModel, Split
from PIL import Image
from readme_tables import conditions, markdown_table, update_readme, with_other_rows
from rival_models import rival_model

from qglow.core.errors import QglowError, UsageError
from qglow.core.types import Array
from qglow.profiling.samples import Sample
from qglow.report.metrics import ErrorAccumulator
from qglow.report.oracle import OnnxruntimeModel
from qglow.report.runner import Runner

TITLES = ("model", "metric", "samples", "float", "qglow", "SQNR", "ORT minmax", "its SQNR")
PATCH, FACTOR, SIDE = 85, 3, 224
PERSON, SMALLEST_PERSON = 0, 0.005
FLOAT, INT8, RIVAL = "float", "qglow", "onnxruntime"

Outputs = list[Array]
Metric = Callable[[list[Sample], Outputs, Outputs], float]
"""Of the samples, a program's outputs and the float model's."""


@dataclass(frozen=True)
class Task:
    """A model, what is measured of it, and which samples that takes."""

    model: EvaluatedModel
    title: str
    metric: Metric
    samples: Callable[[Task, int | None], Iterator[Sample]]


def run(task: Task, limit: int | None) -> tuple[str, ...]:
    """Quantize, run every program over the samples, and give the row of the table."""
    model = task.model
    loaded = model.load()
    split = model.calibration
    profile = loaded.profile(
        model.root / split.data, select=split.select, samples=split.samples, recipe=model.recipe
    )
    programs: dict[str, Runner] = {
        FLOAT: OnnxruntimeModel(model.path, shapes=loaded.shapes, threads=2),
        INT8: loaded.quantize(profile, model.recipe).compile(),
    }
    rival = _rival(model)
    if rival is not None:
        programs[RIVAL] = OnnxruntimeModel(rival, shapes=loaded.shapes, threads=2)
    samples = list(task.samples(task, limit))
    results = {name: _outputs(program, samples) for name, program in programs.items()}
    cells = [f"{task.metric(samples, results[FLOAT], results[FLOAT]):.2f}"]
    for name in (INT8, RIVAL):
        if name not in results:
            cells += ["tool fails", ""]
            continue
        cells.append(f"{task.metric(samples, results[name], results[FLOAT]):.2f}")
        cells.append(f"{_sqnr(results[name], results[FLOAT]):.1f}")
    return (model.name, task.title, str(len(samples)), *cells)


def _rival(model: EvaluatedModel) -> bytes | None:
    loaded = model.load()
    return rival_model(model.path, model.calibration.read(model, loaded), "minmax", loaded.shapes)


def _outputs(program: Runner, samples: Sequence[Sample]) -> Outputs:
    """The first output for every sample, each as a batch of one."""
    found = []
    for sample in samples:
        outputs = program({name: value[None] for name, value in sample.inputs.items()})
        found.append(np.array(next(iter(outputs.values()))))
    return found


def _sqnr(outputs: Outputs, expected: Outputs) -> float:
    errors = ErrorAccumulator()
    for found, reference in zip(outputs, expected, strict=True):
        errors.add(found, reference)
    return errors.summary().sqnr_db


@cache
def _photos() -> dict[str, dict[str, list[list[float]]]]:
    """By file name: the size (width, height) of a photo and its boxes (class, x1, y1, x2, y2)."""
    listed = json.loads((ZOO / "data/coco256/labels.json").read_text(encoding="utf-8"))
    return {Path(photo["file"]).name: photo for photos in listed.values() for photo in photos}


def _size(sample: Sample) -> tuple[int, int]:
    width, height = _photos()[sample.key]["size"]
    return width, height  # type: ignore[return-value]


def _boxes(sample: Sample) -> Array:
    return np.array(_photos()[sample.key]["boxes"], np.float64).reshape(-1, 5)


def _detection(decode: Callable[[Array, tuple[int, int]], Boxes]) -> Metric:
    def metric(samples: list[Sample], outputs: Outputs, _: Outputs) -> float:
        truth = [_boxes(sample) for sample in samples]
        true = [Boxes(boxes[:, 1:], boxes[:, 0].astype(int), np.ones(len(boxes))) for boxes in truth]
        found = [decode(out, _size(sample)) for out, sample in zip(outputs, samples, strict=True)]
        return mean_average_precision(found, true)

    return metric


def _largest_person(sample: Sample) -> float:
    """Share of the photo that its largest box of a person covers; 0 without one."""
    boxes = _boxes(sample)
    people = boxes[boxes[:, 0] == PERSON]
    width, height = _size(sample)
    areas = (people[:, 3] - people[:, 1]) * (people[:, 4] - people[:, 2]) / (width * height)
    return float(areas.max(initial=0.0))


def _person_accuracy(samples: list[Sample], outputs: Outputs, _: Outputs) -> float:
    hits = [
        (_largest_person(sample) > SMALLEST_PERSON) == (int(out[0].argmax()) == 1)
        for sample, out in zip(samples, outputs, strict=True)
    ]
    return 100.0 * float(np.mean(hits))


def _pixel_agreement(_: list[Sample], outputs: Outputs, expected: Outputs) -> float:
    pairs = zip(outputs, expected, strict=True)
    return 100.0 * float(np.mean([np.mean(a.argmax(1) == b.argmax(1)) for a, b in pairs]))


def _psnr(samples: list[Sample], outputs: Outputs, _: Outputs) -> float:
    """Mean over the patches, in dB, of luminance 0..1 clamped and without the outer pixels of a step."""
    figures = []
    for sample, out in zip(samples, outputs, strict=True):
        true = _luminance(sample.key)[FACTOR:-FACTOR, FACTOR:-FACTOR]
        side = PATCH * FACTOR
        found = np.clip(out[0, 0, :side, :side], 0.0, 1.0)[FACTOR:-FACTOR, FACTOR:-FACTOR]
        figures.append(-10.0 * np.log10(np.mean((found - true) ** 2)))
    return float(np.mean(figures))


def _luminance(key: str) -> Array:
    """The centre of a photo, as large as a patch becomes, 0..1."""
    side = PATCH * FACTOR
    with Image.open(ZOO / "data/imagenet_sample" / key) as image:
        gray = image.convert("L")
    left, top = (gray.width - side) // 2, (gray.height - side) // 2
    values: Array = np.asarray(gray.crop((left, top, left + side, top + side)), np.float64) / 255.0
    return values


def _patches(task: Task, limit: int | None) -> Iterator[Sample]:
    """Photos made small by bicubic interpolation, their edges repeated up to the input's size."""
    files = sorted((ZOO / "data/imagenet_sample").glob("*.jpg"))[1::20][:limit]
    name = next(iter(task.model.load().inputs))
    for file in files:
        large = Image.fromarray(np.round(_luminance(file.name) * 255.0).astype(np.uint8))
        small = np.asarray(large.resize((PATCH, PATCH), Image.Resampling.BICUBIC), np.float32) / 255.0
        padded = np.pad(small, (0, SIDE - PATCH), mode="edge")
        yield Sample(file.name, {name: padded[None].astype(np.float32)}, None)


def _photo_samples(task: Task, limit: int | None) -> Iterator[Sample]:
    return task.model.evaluation.read(task.model, task.model.load(), limit)


def _clear_photos(task: Task, limit: int | None) -> Iterator[Sample]:
    """Photos with a person large enough, or none at all."""
    for sample in _photo_samples(task, limit):
        people = (_boxes(sample)[:, 0] == PERSON).any()
        if not people or _largest_person(sample) > SMALLEST_PERSON:
            yield sample


def _model(
    name: str, data: str, calibration: str, evaluation: str, select: str | None = None
) -> EvaluatedModel:
    return EvaluatedModel(
        name, ZOO, f"models/{name}.onnx", Split(f"{data}{calibration}", select), Split(f"{data}{evaluation}")
    )


_COCO = ("data/coco256/", "calib", "val")
_PHOTOS = ("data/imagenet_sample", "", "")
TASKS = (
    Task(
        _model("mlperftiny_vww96", *_COCO), "accuracy, %", _person_accuracy, _clear_photos
    ),
    Task(
        _model("fastestdet", *_COCO), "mAP50, %", _detection(fastestdet_boxes), _photo_samples
    ),
    Task(
        _model("yolox_nano", *_COCO, "::2"), "mAP50, %", _detection(yolox_boxes), _photo_samples
    ),
    Task(
        _model("super_resolution_10", *_PHOTOS, "::50"), "PSNR, dB", _psnr, _patches
    ),
    Task(
        _model("deeplabv3_mnv2_voc", *_COCO, "::5"), "pixels as in float, %", _pixel_agreement, _photo_samples
    ),
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    options = _parse(arguments)
    try:
        rows = []
        for task in _chosen(options.models):
            print(f"{task.model.name} ...", file=sys.stderr, flush=True)
            rows.append(run(task, options.limit))
        table = f"{markdown_table(TITLES, rows)}\n\n{conditions()}"
        print(table)
        if options.update_readme:
            names = [task.model.name for task in TASKS]
            update_readme("task metrics", with_other_rows("task metrics", table, names))
    except QglowError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _chosen(names: Sequence[str]) -> list[Task]:
    by_name: Mapping[str, Task] = {task.model.name: task for task in TASKS}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise UsageError(f"no model is called {', '.join(unknown)}; there are {', '.join(by_name)}")
    return [task for name, task in by_name.items() if not names or name in names]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--models", nargs="+", default=[], metavar="NAME", help="only these")
    parser.add_argument("--limit", type=int, metavar="N", help="evaluate the first N samples only")
    parser.add_argument("--update-readme", action="store_true", help="put the table into README.md")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
