"""Plots and reports of the documentation's front page: six models of different kinds, float against int8.

Each model is quantized with default settings and judged by its task: accuracy, mAP50 of a detector, the next
token of a language model; or, where nothing is labelled, by the cosine similarity with the float outputs.
Latency is that of a call on one thread, in turns with onnxruntime on the float model and on the exported QDQ
model. With --update-docs the plot and the report pages are written into docs/assets/gallery, and the table,
with machine and commit, into the front page. It takes about 2 minutes on two cores that are idle.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import qglow
from qglow import LayerReport, QuantizedModel
from qglow.core.errors import InputFileError, UsageError
from qglow.core.files import write_atomically
from qglow.display.blocks import byte_count, milliseconds
from qglow.profiling.samples import Sample
from qglow.report.comparison import compare
from qglow.report.comparison_result import FLOAT, INT8, Comparison
from qglow.report.latencies import QGLOW_INT8, RIVALS
from qglow.report.oracle import OnnxruntimeModel
from qglow.report.task_metric import open_metric
from qglow.tuning.effort import FAST
from scripts.benchmarks.bars import Bar, Group, to_svg
from scripts.benchmarks.frame import (
    Benchmark,
    Outcome,
    add_alternations_option,
    add_limit_option,
    announce,
    with_progress,
)
from scripts.benchmarks.models.evaluated import REPOSITORY, EvaluatedModel
from scripts.benchmarks.models.opened import opened_models
from scripts.benchmarks.tables import conditions, markdown_table, processor_name
from scripts.benchmarks.tasks.zoo_metrics import fastestdet_map50

FOLDER = REPOSITORY / "docs" / "assets" / "gallery"
COMMAND = "python -m scripts.benchmarks gallery --update-docs"
KINDS = {
    "squeezenet1.1": "classifier of photos",
    "cifar10_resnet20": "small residual network",
    "fastestdet": "detector of objects",
    "bert_agnews": "text encoder",
    "ten_vad": "recurrent voice detector",
    "llama_stories260k": "language model",
}
EXAMPLE = {"digits": "example of this repository"}
"""A model that every checkout has."""
DETECTORS = {"fastestdet": fastestdet_map50}
COSINE = "cosine with float"
"""Metric of a model without labels."""
LAYER_SAMPLES = 8
PANELS = ("accuracy, %", "latency of a call", "weights")
KEY = (("a", "float32 in onnxruntime"), ("b", "int8 in onnxruntime (QDQ of qglow)"), ("c", "int8 in qglow"))
TITLES = (
    "model",
    "measured by",
    "float",
    "int8",
    "ORT float32",
    "ORT int8",
    "qglow int8",
    "float weights",
    "int8 weights",
)


@dataclass(frozen=True)
class Exhibit:
    """Figures of one model.

    metric: what `real` and `int8` are, in per cent. real_ms, rival_ms, int8_ms: of onnxruntime in float32 and
    int8, and of qglow in int8. real_bytes, int8_bytes: of constants. page: the report, as HTML.
    """

    name: str
    metric: str
    samples: int
    real: float
    int8: float
    real_ms: float
    rival_ms: float
    int8_ms: float
    real_bytes: int
    int8_bytes: int
    page: str


def measure(model: EvaluatedModel, alternations: int, limit: int | None) -> Exhibit:
    """Quantize, compare, time and report one model."""
    loaded = model.load()
    quantized = model.quantize(loaded, model.profile(loaded), FAST)
    comparison = compare(
        quantized.compile(),
        OnnxruntimeModel(model.path, shapes=loaded.shapes, threads=2, exact_sums=True),
        _samples(model, limit),
        metric=open_metric(DETECTORS[model.name]) if model.name in DETECTORS else None,
    )
    metric, real, int8 = figures(comparison)
    announce(model.name, "in turns")
    timed = qglow.bench(quantized, threads=1, alternations=alternations).latencies
    report = quantized.report
    assert report is not None
    return Exhibit(
        model.name,
        metric,
        comparison.samples,
        real,
        int8,
        timed[RIVALS["float32"]].median_ms,
        timed[RIVALS["int8"]].median_ms,
        timed[QGLOW_INT8].median_ms,
        report.weight_bytes_before,
        report.weight_bytes_after,
        _page(quantized, comparison, _layers(model, quantized)),
    )


def figures(comparison: Comparison) -> tuple[str, float, float]:
    """What a model is judged by, of the float and of the int8 model in per cent."""
    if comparison.metric is not None:
        values = comparison.metric.values
        return "mAP50", values[FLOAT], values[INT8]
    if comparison.accuracy:
        names = {"positions": "top-1 of positions"}
        real, int8 = (100.0 * comparison.accuracy[name].top1 for name in (FLOAT, INT8))
        return names.get(comparison.counted, "top-1"), real, int8
    return COSINE, 100.0, 100.0 * comparison.pairing(INT8, FLOAT).overall.cosine


def _samples(model: EvaluatedModel, limit: int | None) -> Iterator[Sample]:
    return model.evaluation.read(model, model.load(), limit)


def _layers(model: EvaluatedModel, quantized: QuantizedModel) -> LayerReport:
    """Errors of layers over samples of calibration, of which every model has some in a plain place."""
    split = model.calibration
    data = str(model.root / split.data)
    count = LAYER_SAMPLES if split.samples is None else min(LAYER_SAMPLES, split.samples)
    return qglow.compare_layers(quantized, data, recipe=model.recipe, select=split.select, samples=count)


def _page(quantized: QuantizedModel, comparison: Comparison, layers: LayerReport) -> str:
    with TemporaryDirectory(prefix="qglow-gallery-") as folder:
        quantized.save_report(folder, comparison=comparison, layers=layers, data="samples of the gallery")
        return (Path(folder) / "report.html").read_text(encoding="utf-8")


def rows_of(exhibits: Sequence[Exhibit]) -> list[Group]:
    """Rows of the plot: accuracy to 100 %, latency relative to the longest, weights relative to float."""
    rows = []
    for x in exhibits:
        times = (("a", x.real_ms), ("b", x.rival_ms), ("c", x.int8_ms))
        longest = max(value for _, value in times)
        judged = [
            Bar(kind, value / 100.0, f"{value:.2f}{' (cosine)' if x.metric == COSINE else ''}")
            for kind, value in (("a", x.real), ("c", x.int8))
        ]
        timed = [Bar(kind, value / longest, milliseconds(value)) for kind, value in times]
        weights = [
            Bar("a", 1.0, byte_count(x.real_bytes)),
            Bar("c", x.int8_bytes / max(x.real_bytes, 1), byte_count(x.int8_bytes)),
        ]
        rows.append(Group(x.name, (KINDS | EXAMPLE)[x.name], (judged, timed, weights)))
    return rows


def to_plot(exhibits: Sequence[Exhibit]) -> str:
    """The plot as SVG."""
    return to_svg("Float against int8: accuracy, latency and weights", PANELS, KEY, rows_of(exhibits))


def to_markdown(exhibits: Sequence[Exhibit], links: bool = False) -> str:
    """The table; with links to the reports."""
    body = [
        (
            f"[{x.name}](assets/gallery/{x.name}.html)" if links else x.name,
            f"{x.metric}, {x.samples} samples",
            f"{x.real:.2f}",
            f"{x.int8:.2f}",
            *(milliseconds(value) for value in (x.real_ms, x.rival_ms, x.int8_ms)),
            byte_count(x.real_bytes),
            byte_count(x.int8_bytes),
        )
        for x in exhibits
    ]
    return f"{markdown_table(TITLES, body)}\n\n{conditions()}"


def write_gallery(exhibits: Sequence[Exhibit], folder: Path = FOLDER) -> None:
    """Write the plot and a report page for each model. Raises InputFileError."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "gallery.svg", to_plot(exhibits))
    for exhibit in exhibits:
        write_atomically(folder / f"{exhibit.name}.html", exhibit.page)


def _kept(exhibits: Sequence[Exhibit]) -> str:
    """Write the files, and give what goes into the page.

    Raises UsageError where that is not the whole gallery.
    """
    if [exhibit.name for exhibit in exhibits] != list(KINDS):
        raise UsageError("the front page shows the whole gallery: leave out --models")
    write_gallery(exhibits)
    facts = (
        f"- **Machine:** {processor_name()}, virtual\n"
        f"- **Commit:** `{_commit()}`\n"
        f"- **Command:** `{COMMAND}`, on an otherwise idle machine"
    )
    return f"{facts}\n\n{to_markdown(exhibits, links=True)}"


def _commit() -> str:
    """The commit that is checked out. Raises InputFileError where git cannot tell."""
    words = ["git", "-C", str(REPOSITORY), "rev-parse", "--short=7", "HEAD"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise InputFileError(f"git cannot tell the commit of {REPOSITORY}: {error}") from error


def _measure_all(options: argparse.Namespace) -> Outcome:
    if options.limit is not None and options.update_docs:
        raise UsageError("the front page shows figures over all samples: leave out --limit")
    known = (*EXAMPLE, *KINDS)
    models = with_progress(opened_models(options.models, known))
    exhibits = [measure(model, options.alternations, options.limit) for model in models]
    return Outcome(to_markdown(exhibits), lambda: _kept(exhibits))


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_alternations_option(parser, 100)
    add_limit_option(parser)


BENCHMARK = Benchmark(__doc__, _measure_all, "gallery", tuple(KINDS), _add_options)
