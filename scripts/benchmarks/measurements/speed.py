"""Latency of qglow's programs beside onnxruntime's and, where it is installed, OpenVINO's.

One thread, batch 1. For every model the programs take turns in one process, each warmed up, and the
medians are shown: qglow in int8 and in float32, onnxruntime in float32, onnxruntime on the QDQ model
that qglow exports and on the one that its own tool makes, OpenVINO in float32, in bfloat16 where the
processor has it, and on qglow's QDQ model.
Compare ratios of one run only, on a machine that does nothing else.

mobilenet_v1_224, mobilenet_v2_224 and those called light_... have random weights: their speed alone means
something. Exits with 1, and a line for each, where qglow int8 takes more than 50 microseconds and is slower
than its own float32 program or another tool's.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qglow import BenchResult, Model, QuantizedModel
from qglow.core.errors import ModelError
from qglow.report.bench import Contender, bench
from qglow.report.contenders import Inputs, of_executable, of_onnxruntime, of_openvino, random_inputs
from qglow.report.openvino_model import Precision, has_bfloat16
from scripts.benchmarks.frame import (
    Benchmark,
    Outcome,
    add_alternations_option,
    add_json_option,
    json_document,
    with_progress,
)
from scripts.benchmarks.models.evaluated import TIMING_SAMPLES, EvaluatedModel
from scripts.benchmarks.models.opened import TIMED_NAMES, opened_models
from scripts.benchmarks.rivals.quantize import rival_model
from scripts.benchmarks.tables import conditions, markdown_table, with_other_rows

INT8, FLOAT = "qglow int8", "qglow float32"
ORT_FLOAT, ORT_QDQ, ORT_OWN = "ORT float32", "ORT int8, QDQ of qglow", "ORT int8, own tool"
VINO_FLOAT, VINO_HALF = "OpenVINO float32", "OpenVINO bfloat16"
VINO_QDQ = "OpenVINO int8, QDQ of qglow"
COLUMNS = (INT8, FLOAT, ORT_FLOAT, ORT_QDQ, ORT_OWN, VINO_FLOAT, VINO_HALF, VINO_QDQ)
RIVALS = {"ORT int8": (ORT_QDQ, ORT_OWN), "OpenVINO int8": (VINO_QDQ,)}
"""Whose int8 programs the last columns compare with; the fastest of each counts."""
SHORTEST_MS = 0.05
"""Below this an int8 program need not beat float ones: calling it is most of the time."""


@dataclass(frozen=True)
class Row:
    """One model: median milliseconds by program, and the paired ratio of each to qglow int8."""

    model: str
    medians_ms: Mapping[str, float]
    ratios: Mapping[str, float]

    def int8_ratio(self, rivals: Sequence[str] = (ORT_QDQ, ORT_OWN)) -> float | None:
        """Time of the fastest of these relative to qglow int8: above 1 qglow is faster; None without any."""
        return min((self.ratios[name] for name in rivals if name in self.ratios), default=None)

    def slower_than(self) -> list[str]:
        """What qglow int8 should be at least as fast as, and is not."""
        if self.medians_ms[INT8] < SHORTEST_MS:
            return []
        return [name for name in COLUMNS[1:] if self.ratios.get(name, 1.0) < 1.0]


def measure(model: EvaluatedModel, isa: str | None, alternations: int) -> Row:
    """Make every program for one model and time them in turns."""
    loaded = model.load()
    result = bench(_contenders(model, loaded, model.quantize_for_timing(loaded), isa), alternations)
    return _row(model.name, result)


def _contenders(
    model: EvaluatedModel, loaded: Model, quantized: QuantizedModel, isa: str | None
) -> dict[str, Contender]:
    inputs = random_inputs(loaded.inputs)
    qdq = quantized.qdq_bytes(bound_shapes=True)
    samples = model.calibration.read(model, loaded, TIMING_SAMPLES)
    own = rival_model(model.path, samples, "minmax", loaded.shapes)
    contenders: dict[str, Contender] = {
        INT8: of_executable(quantized.compile(isa=isa, threads=1), inputs),
        FLOAT: of_executable(loaded.compile(isa=isa, threads=1), inputs),
        ORT_FLOAT: of_onnxruntime(model.path, inputs),
        ORT_QDQ: of_onnxruntime(qdq, inputs),
    }
    if own is not None:
        contenders[ORT_OWN] = of_onnxruntime(own, inputs)
    return contenders | _openvino_contenders(model, qdq, inputs)


def _openvino_contenders(model: EvaluatedModel, qdq: bytes, inputs: Inputs) -> dict[str, Contender]:
    """Those that OpenVINO can make, where it is installed."""
    if importlib.util.find_spec("openvino") is None:
        return {}
    wanted: dict[str, tuple[Path | bytes, Precision]] = {VINO_FLOAT: (model.path, "f32")}
    if has_bfloat16():
        wanted[VINO_HALF] = model.path, "bf16"
    wanted[VINO_QDQ] = qdq, "f32"
    contenders: dict[str, Contender] = {}
    for name, (content, precision) in wanted.items():
        try:
            contenders[name] = of_openvino(content, inputs, precision=precision)
        except ModelError as error:
            print(f"{model.name}: {error}", file=sys.stderr)
    return contenders


def _row(name: str, result: BenchResult) -> Row:
    medians = {key: latency.median_ms for key, latency in result.latencies.items()}
    return Row(name, medians, {key: result.ratio(key, INT8).ratio for key in medians})


def to_markdown(rows: Sequence[Row]) -> str:
    """The table of the documentation; programs that were never measured have no column."""
    columns = [name for name in COLUMNS if any(name in row.medians_ms for row in rows)]
    rivals = {f"{title} / {INT8}": names for title, names in RIVALS.items() if set(names) & set(columns)}
    body = [
        (
            row.model,
            *(_milliseconds(row.medians_ms.get(name)) for name in columns),
            *(_ratio(row.int8_ratio(names)) for names in rivals.values()),
        )
        for row in rows
    ]
    table = markdown_table(("model", *columns, *rivals), body)
    return f"{table}\n\nMilliseconds a call, medians; one thread, batch 1. {conditions()}"


def with_means(text: str) -> str:
    """The text with a line behind its table: the geometric mean of each of its columns of ratios."""
    table, _, rest = text.partition("\n\n")
    titles, _, *body = ([cell.strip() for cell in line.split("|")[1:-1]] for line in table.split("\n"))
    means = []
    for column, title in enumerate(titles):
        values = [float(row[column]) for row in body if " / " in title and row[column] != "-"]
        if values:
            means.append(f"{title} {math.exp(sum(map(math.log, values)) / len(values)):.2f}")
    return f"{table}\n\nGeometric means over {len(body)} models: {', '.join(means)}.\n{rest}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _milliseconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value >= 1.0 else f"{value:.3f}"


def to_json(rows: Iterable[Row]) -> str:
    """The same as data."""
    models = [{"model": r.model, "median_ms": dict(r.medians_ms), "ratio": dict(r.ratios)} for r in rows]
    return json_document(models=models)


def _measure_all(options: argparse.Namespace) -> Outcome:
    models = with_progress(opened_models(options.models, TIMED_NAMES))
    rows = [measure(model, options.isa, options.alternations) for model in models]
    table = to_markdown(rows)

    def kept() -> str:
        return with_means(with_other_rows("speed", table, TIMED_NAMES))

    slower = [f"{row.model}: slower than {name}" for row in rows for name in row.slower_than()]
    return Outcome(with_means(table), kept, to_json(rows), slower)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--isa", metavar="NAME", help="kernels of qglow; default the host's best")
    add_alternations_option(parser, 100)
    add_json_option(parser)


BENCHMARK = Benchmark(__doc__, _measure_all, "speed", add_options=_add_options)
