"""What int8 costs in the metric of the task, for models that top-1 accuracy does not measure.

    python scripts/task_metrics.py [--models NAME ...] [--limit N] [--update-readme]

Detectors by mAP50, visual wake words by accuracy, super-resolution by PSNR, and segmentation by mIoU
with the classes of the float model in place of masks, of which there are none. Each is measured for
the float model in onnxruntime, for qglow, and for onnxruntime's static quantization by minmax (QDQ,
uint8 activations, int8 weights per channel), calibrated on the same samples.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import zoo_metrics
from evaluated_models import ZOO, EvaluatedModel, Split
from PIL import Image
from readme_tables import conditions, markdown_table, update_readme, with_other_rows
from rival_models import rival_model

from qglow.core.errors import QglowError, UsageError
from qglow.core.types import Array
from qglow.profiling.samples import Sample
from qglow.report.comparison import FLOAT, INT8, Comparison, compare
from qglow.report.oracle import OnnxruntimeModel
from qglow.report.runner import Runner
from qglow.report.task_metric import open_metric

TITLES = ("model", "metric", "samples", "float", "qglow", "SQNR", "ORT minmax", "its SQNR")
SIDE = 224
RIVAL = "onnxruntime's tool"


@dataclass(frozen=True)
class Task:
    """A model, what is measured of it, and which samples that takes."""

    model: EvaluatedModel
    title: str
    metric: str | Callable[..., float]
    samples: Callable[[Task, int | None], Iterator[Sample]]


def run(task: Task, limit: int | None) -> tuple[str, ...]:
    """Quantize, run every program over the samples, and give the row of the table."""
    model = task.model
    loaded = model.load()
    split = model.calibration
    profile = loaded.profile(
        model.root / split.data, select=split.select, samples=split.samples, recipe=model.recipe
    )
    rival = _rival(model)
    rivals: dict[str, Runner] = {}
    if rival is not None:
        rivals[RIVAL] = OnnxruntimeModel(rival, shapes=loaded.shapes, threads=2)
    comparison = compare(
        loaded.quantize(profile, model.recipe).compile(),
        OnnxruntimeModel(model.path, shapes=loaded.shapes, threads=2),
        task.samples(task, limit),
        rivals=rivals,
        metric=open_metric(task.metric),
    )
    return to_row(task, comparison)


def to_row(task: Task, comparison: Comparison) -> tuple[str, ...]:
    """The row of the README's table."""
    assert comparison.metric is not None
    values = comparison.metric.values
    cells = [f"{values[FLOAT]:.2f}" if FLOAT in values else "-"]
    for name in (INT8, RIVAL):
        if name not in values:
            cells += ["tool fails", ""]
            continue
        sqnr = comparison.pairing(name, FLOAT).overall.sqnr_db
        cells += [f"{values[name]:.2f}", f"{sqnr:.1f}"]
    return (task.model.name, task.title, str(comparison.samples), *cells)


def _rival(model: EvaluatedModel) -> bytes | None:
    loaded = model.load()
    return rival_model(model.path, model.calibration.read(model, loaded), "minmax", loaded.shapes)


def _patches(task: Task, limit: int | None) -> Iterator[Sample]:
    """Photos made small by bicubic interpolation, their edges repeated up to the input's size."""
    files = sorted((ZOO / "data/imagenet_sample").glob("*.jpg"))[1::20][:limit]
    name = next(iter(task.model.load().inputs))
    small = zoo_metrics.PATCH
    for file in files:
        large = Image.fromarray(np.round(zoo_metrics.luminance(file.name) * 255.0).astype(np.uint8))
        patch = np.asarray(large.resize((small, small), Image.Resampling.BICUBIC), np.float32) / 255.0
        padded: Array = np.pad(patch, (0, SIDE - small), mode="edge")
        yield Sample(file.name, {name: padded[None].astype(np.float32)}, None)


def _photo_samples(task: Task, limit: int | None) -> Iterator[Sample]:
    return task.model.evaluation.read(task.model, task.model.load(), limit)


def _clear_photos(task: Task, limit: int | None) -> Iterator[Sample]:
    """Photos with a person large enough, or none at all."""
    for sample in _photo_samples(task, limit):
        people = (zoo_metrics.true_boxes(sample.key)[:, 0] == zoo_metrics.PERSON).any()
        if not people or zoo_metrics.largest_person(sample.key) > zoo_metrics.SMALLEST_PERSON:
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
        _model("mlperftiny_vww96", *_COCO), "accuracy, %", zoo_metrics.person_accuracy, _clear_photos
    ),
    Task(
        _model("fastestdet", *_COCO), "mAP50, %", zoo_metrics.fastestdet_map50, _photo_samples
    ),
    Task(
        _model("yolox_nano", *_COCO, "::2"), "mAP50, %", zoo_metrics.yolox_map50, _photo_samples
    ),
    Task(
        _model("super_resolution_10", *_PHOTOS, "::50"), "PSNR, dB", zoo_metrics.upscaled_psnr, _patches
    ),
    Task(
        _model("deeplabv3_mnv2_voc", *_COCO, "::5"), "mIoU with float, %", "miou", _photo_samples
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
