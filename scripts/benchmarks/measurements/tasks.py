"""What int8 costs in the metric of the task, for models that top-1 accuracy does not measure.

Detectors by mAP50, visual wake words by accuracy, super-resolution by PSNR; detectors of faces, for
which there are no true boxes, by the boxes that they have in common with the float model (F1 of pairs
that overlap by half), and segmentation by mIoU with the classes of the float model. Models over sequences
of any length, and over streams, by what they find in text, in drawn digits and in drawn voices. Each is
measured for the float model in onnxruntime, for qglow by each effort, and for the other tools that the
benchmark accuracy compares with, calibrated on the same samples.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from PIL import Image

from qglow.core.types import Array
from qglow.profiling.samples import Sample
from qglow.report.comparison import compare
from qglow.report.comparison_result import FLOAT, INT8, Comparison
from qglow.report.oracle import OnnxruntimeModel
from qglow.report.runner import Runner
from qglow.report.task_metric import open_metric
from qglow.tuning.effort import EFFORTS, FAST
from scripts.benchmarks.frame import Benchmark, Outcome, add_limit_option, with_progress
from scripts.benchmarks.models.evaluated import ZOO, EvaluatedModel, check_names
from scripts.benchmarks.models.labelled import TASK_MODELS
from scripts.benchmarks.rivals.cache import RivalCache, add_cache_options, title_of, tools
from scripts.benchmarks.tables import conditions, markdown_table, with_other_rows
from scripts.benchmarks.tasks import zoo_metrics
from scripts.benchmarks.tasks.sequences import SEQUENCE_TASKS, SequenceTask

TITLES = ("model", "metric", "samples", "float")
MEASURED_EFFORTS = (FAST, "balanced")
SIDE = 224


@dataclass(frozen=True)
class Task:
    """What is measured of a model, and on which samples."""

    title: str
    metric: str | Callable[..., float]
    samples: Callable[[EvaluatedModel, int | None], Iterator[Sample]]


def measure(
    model: EvaluatedModel, efforts: Sequence[str], limit: int | None, cache: RivalCache
) -> tuple[str, ...]:
    """Quantize by every means, run every program over the samples, and give the row of the table."""
    loaded, task = model.load(), TASKS[model.name]
    profile = model.profile(loaded)
    first, *more = [model.quantize(loaded, profile, effort).compile() for effort in efforts]
    made = {title_of(tool): cache.get(model, loaded, tool) for tool in tools()}
    rivals: dict[str, Runner] = dict(zip(efforts[1:], more, strict=True))
    rivals |= {
        title: OnnxruntimeModel(content, shapes=loaded.shapes, threads=2, exact_sums=True)
        for title, content in made.items()
        if content is not None
    }
    comparison = compare(
        first,
        OnnxruntimeModel(model.path, shapes=loaded.shapes, threads=2),
        task.samples(model, limit),
        rivals=rivals,
        metric=open_metric(task.metric),
    )
    return to_row(model.name, task, comparison, (INT8, *efforts[1:], *made))


def to_row(model: str, task: Task, comparison: Comparison, programs: Sequence[str]) -> tuple[str, ...]:
    """The row of the table: a cell for float, and for each program."""
    assert comparison.metric is not None
    values = comparison.metric.values
    cells = [f"{values[FLOAT]:.2f}" if FLOAT in values else "-"]
    for name in programs:
        if name not in values:
            cells.append("none")
            continue
        sqnr = comparison.pairing(name, FLOAT).overall.sqnr_db
        cells.append(f"{values[name]:.2f} / {sqnr:.1f}")
    return (model, task.title, str(comparison.samples), *cells)


def measure_sequences(task: SequenceTask, efforts: Sequence[str]) -> tuple[str, ...]:
    """The row of a model over sequences: float in onnxruntime, and the defaults; nothing else is measured."""
    exact, model = task.in_onnxruntime(), task.load()
    quantized = model.quantize(model.profile(task.calibration(exact)))
    value = task.metric(quantized.compile(), exact, task.count)
    sqnr = None if quantized.verdict is None else quantized.verdict.sqnr_db
    before = f"{task.metric(exact, exact, task.count):.2f}" if task.labelled else "-"
    cell = f"{value:.2f}" if sqnr is None else f"{value:.2f} / {sqnr:.1f}"
    cells = [cell if effort == FAST else "-" for effort in efforts]
    return (task.name, task.title, str(task.count), before, *cells, *("-" for _ in tools()))


def _patches(model: EvaluatedModel, limit: int | None) -> Iterator[Sample]:
    """Photos made small by bicubic interpolation, their edges repeated up to the input's size."""
    files = sorted((ZOO / "data/imagenet_sample").glob("*.jpg"))[1::20][:limit]
    name = next(iter(model.load().inputs))
    small = zoo_metrics.PATCH
    for file in files:
        large = Image.fromarray(np.round(zoo_metrics.luminance(file.name) * 255.0).astype(np.uint8))
        patch = np.asarray(large.resize((small, small), Image.Resampling.BICUBIC), np.float32) / 255.0
        padded: Array = np.pad(patch, (0, SIDE - small), mode="edge")
        yield Sample(file.name, {name: padded[None].astype(np.float32)}, None)


def _photo_samples(model: EvaluatedModel, limit: int | None) -> Iterator[Sample]:
    return model.evaluation.read(model, model.load(), limit)


def _clear_photos(model: EvaluatedModel, limit: int | None) -> Iterator[Sample]:
    """Photos with a person large enough, or none at all."""
    for sample in _photo_samples(model, limit):
        people = (zoo_metrics.true_boxes(sample.key)[:, 0] == zoo_metrics.PERSON).any()
        if not people or zoo_metrics.largest_person(sample.key) > zoo_metrics.SMALLEST_PERSON:
            yield sample


TASKS: Mapping[str, Task] = {
    "mlperftiny_vww96": Task("accuracy, %", zoo_metrics.person_accuracy, _clear_photos),
    "fastestdet": Task("mAP50, %", zoo_metrics.fastestdet_map50, _photo_samples),
    "yolox_nano": Task("mAP50, %", zoo_metrics.yolox_map50, _photo_samples),
    "ultraface_rfb320": Task("F1 with float, %", zoo_metrics.ultraface_agreement, _photo_samples),
    "yunet_n_320": Task("F1 with float, %", zoo_metrics.yunet_agreement, _photo_samples),
    "super_resolution_10": Task("PSNR, dB", zoo_metrics.upscaled_psnr, _patches),
    "deeplabv3_mnv2_voc": Task("mIoU with float, %", "miou", _photo_samples),
}
"""By the names of TASK_MODELS."""


def _measure_all(options: argparse.Namespace) -> Outcome:
    cache = RivalCache(options.cache, options.patience)
    names = [*(model.name for model in TASK_MODELS), *(task.name for task in SEQUENCE_TASKS)]
    check_names(options.models, names)
    wanted = options.models or names
    models = with_progress([model for model in TASK_MODELS if model.name in wanted])
    rows = [measure(model, options.efforts, options.limit, cache) for model in models]
    tasks = with_progress([task for task in SEQUENCE_TASKS if task.name in wanted])
    rows += [measure_sequences(task, options.efforts) for task in tasks]
    titles = (*TITLES, *options.efforts, *map(title_of, tools()))
    table = f"{markdown_table(titles, rows)}\n\n{conditions()}"
    return Outcome(table, partial(with_other_rows, "task metrics", table, names))


def _add_options(parser: argparse.ArgumentParser) -> None:
    known = (FAST, *EFFORTS)
    parser.add_argument(
        "--efforts", nargs="+", default=MEASURED_EFFORTS, choices=known, metavar="NAME", help="only these"
    )
    add_limit_option(parser)
    add_cache_options(parser)


BENCHMARK = Benchmark(__doc__, _measure_all, "task metrics", add_options=_add_options)
