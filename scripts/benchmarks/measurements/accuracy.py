"""Accuracy of qglow's int8 models beside that of other quantization tools.

Every quantizer calibrates on the same samples, and every result is measured on the same other
samples: the float model in onnxruntime, qglow with the recipe in recipes/ by each effort, onnxruntime's
static quantization (QDQ, uint8 activations, int8 weights per channel) by each of its calibration
methods, and NNCF's post-training quantization where it is installed (extra `bench`).
All of it takes an hour or two, most of it in the higher efforts and in onnxruntime's tool, which also
holds every intermediate result of every calibration sample; what the tools made is kept in --cache
and used again, and --resume measures only models that the JSON file does not have. A tool that takes
longer than --patience for a model is stopped, and said to.

Exits with 1, and a line for each, where qglow (with effort balanced, where that is measured) is behind
the best of the others by more than the limits: 1 point of top-1, 1 point of agreement, 0.5 dB of SQNR.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from qglow.api.clusters import jobs_at
from qglow.core.errors import UsageError
from qglow.core.files import write_atomically
from qglow.core.jobs import HereJobs, spread
from qglow.report.comparison import compare
from qglow.report.comparison_result import FLOAT, INT8, Comparison
from qglow.report.oracle import OnnxruntimeModel
from qglow.report.runner import Runner
from qglow.tuning.effort import EFFORTS, FAST
from scripts.benchmarks.frame import (
    Benchmark,
    Outcome,
    add_json_option,
    add_limit_option,
    announce,
    json_document,
    read_rows,
)
from scripts.benchmarks.models.evaluated import EvaluatedModel, chosen_models
from scripts.benchmarks.models.labelled import MODELS
from scripts.benchmarks.rivals.cache import RivalCache, add_cache_options, title_of, tools
from scripts.benchmarks.tables import conditions, markdown_table, with_other_rows

TITLES = ("model", "samples", "float top-1")
ALL_EFFORTS = (FAST, *EFFORTS)
JUDGED = "balanced"
"""The effort that has to stand beside the other tools."""
LIMITS = {
    "top1": ("top-1", "points", 1.0),
    "agreement": ("agreement", "points", 1.0),
    "sqnr_db": ("SQNR", "dB", 0.5),
}
"""By how much each figure may be behind the best of the others."""


@dataclass(frozen=True)
class Figures:
    """One int8 model: accuracy, agreement with float (both per cent) and SQNR of the outputs in dB.

    lost, won: samples that only the float model, and only this one, gets right. seconds: of quantizing, for
    other tools with the calibration, where that is known.
    """

    top1: float
    agreement: float
    sqnr_db: float
    lost: int
    won: int
    seconds: float | None = None


@dataclass(frozen=True)
class Row:
    """One model: float accuracy in per cent, qglow's figures by effort, and those of other tools by name.

    A tool that fails on the model, or takes too long, is not in `others`.
    """

    model: str
    samples: int
    float_top1: float
    efforts: dict[str, Figures]
    others: dict[str, Figures]

    @property
    def judged(self) -> Figures:
        """The figures that are compared with other tools: those of JUDGED, else of the last effort."""
        return self.efforts.get(JUDGED, [*self.efforts.values()][-1])

    def behind(self) -> list[str]:
        """In what qglow is behind the best of the others by more than it may be."""
        found = []
        for name, (what, unit, limit) in LIMITS.items():
            figures = {tool: float(getattr(other, name)) for tool, other in self.others.items()}
            if not figures:
                continue
            best = max(figures, key=figures.__getitem__)
            gap = figures[best] - float(getattr(self.judged, name))
            if gap > limit:
                found.append(f"{what} is {gap:.2f} {unit} behind {title_of(best)} (limit {limit:g})")
        return found


def measure(model: EvaluatedModel, efforts: Sequence[str], limit: int | None, cache: RivalCache) -> Row:
    """Quantize by every means, and compare all results with the float model in one pass over the data."""
    loaded = model.load()
    profile = model.profile(loaded)
    ours, seconds = {}, {}
    for effort in efforts:
        start = time.perf_counter()
        ours[effort] = model.quantize(loaded, profile, effort)
        seconds[effort] = time.perf_counter() - start
        print(f"  {effort}: {seconds[effort]:.1f} s", file=sys.stderr, flush=True)
    made = {tool: cache.get(model, loaded, tool) for tool in tools()}
    rivals: dict[str, Runner] = {
        title_of(tool): OnnxruntimeModel(content, shapes=loaded.shapes, exact_sums=True)
        for tool, content in made.items()
        if content is not None
    }
    first, *more = efforts
    rivals |= {effort: ours[effort].compile() for effort in more}
    comparison = compare(
        ours[first].compile(),
        OnnxruntimeModel(model.path, shapes=loaded.shapes),
        model.evaluation.read(model, loaded, limit),
        rivals=rivals,
    )
    figures = {
        effort: replace(_figures(comparison, INT8 if effort == first else effort), seconds=seconds[effort])
        for effort in efforts
    }
    others = {
        tool: replace(_figures(comparison, title_of(tool)), seconds=cache.seconds(model, loaded, tool))
        for tool in made
        if title_of(tool) in rivals
    }
    return Row(model.name, comparison.samples, 100.0 * comparison.accuracy[FLOAT].top1, figures, others)


@dataclass(frozen=True)
class RowWork:
    """Measurement of models; a job takes one model, whose files lie at the same place everywhere."""

    efforts: tuple[str, ...]
    limit: int | None
    cache: RivalCache

    def begin(self) -> Callable[[EvaluatedModel], Row]:
        """Nothing is prepared."""

        def row(model: EvaluatedModel) -> Row:
            announce(model.name)
            return measure(model, self.efforts, self.limit, self.cache)

        return row


def _figures(comparison: Comparison, name: str) -> Figures:
    pairing = comparison.pairing(name, FLOAT)
    agreement = 0.0 if pairing.agreement is None else 100.0 * pairing.agreement.top1
    flips = pairing.flips
    assert flips is not None
    top1 = 100.0 * comparison.accuracy[name].top1
    return Figures(top1, agreement, pairing.overall.sqnr_db, flips.lost, flips.won)


def to_markdown(rows: Sequence[Row]) -> str:
    """The table: a column for every effort that any row has, `-` where it was not measured."""
    efforts = _efforts(rows)
    body = [
        (
            row.model,
            str(row.samples),
            f"{row.float_top1:.2f}",
            *(_cell(row.efforts.get(effort), "-") for effort in efforts),
            *(_cell(row.others.get(tool), "none") for tool in tools()),
        )
        for row in rows
    ]
    titles = (*TITLES, *efforts, *(title_of(tool) for tool in tools()))
    return f"{markdown_table(titles, body)}\n\n{conditions()}"


def _efforts(rows: Sequence[Row]) -> list[str]:
    return [effort for effort in ALL_EFFORTS if any(effort in row.efforts for row in rows)]


def _cell(figures: Figures | None, missing: str) -> str:
    if figures is None:
        return missing
    return f"{figures.top1:.2f} / {figures.agreement:.1f} / {figures.sqnr_db:.1f}"


def times(rows: Sequence[Row]) -> str:
    """A table of seconds by effort, beside those of the other tools; `-` where they are not known."""
    efforts = _efforts(rows)
    body = [
        (
            row.model,
            *(_seconds(row.efforts.get(effort)) for effort in efforts),
            *(_seconds(row.others.get(tool)) for tool in tools()),
        )
        for row in rows
    ]
    titles = ("model", *(f"{title}, s" for title in (*efforts, *(title_of(tool) for tool in tools()))))
    return markdown_table(titles, body)


def _seconds(figures: Figures | None) -> str:
    return "-" if figures is None or figures.seconds is None else f"{figures.seconds:.1f}"


def totals(rows: Sequence[Row]) -> list[str]:
    """Every effort and every other tool, over the models that both were measured on."""
    lines = []
    for effort in _efforts(rows):
        measured = [row for row in rows if effort in row.efforts]
        lines.append(f"{effort}: {sum(row.efforts[effort].seconds or 0.0 for row in measured):.0f} s in all")
        for tool in tools():
            both = [(row.efforts[effort], row.others[tool]) for row in measured if tool in row.others]
            if both:
                lines.append(f"{effort} against {title_of(tool)} {_difference(both)}")
    return lines


def _difference(both: Sequence[tuple[Figures, Figures]]) -> str:
    agreement = sum(ours.agreement - its.agreement for ours, its in both) / len(both)
    sqnr = sum(ours.sqnr_db - its.sqnr_db for ours, its in both) / len(both)
    net, their_net = (sum(f.lost - f.won for f in each) for each in zip(*both, strict=True))
    return (
        f"over {len(both)} models: lost minus won {net} against {their_net}, "
        f"in the mean {agreement:+.2f} points of agreement and {sqnr:+.2f} dB of SQNR"
    )


def row_of(fields: dict[str, Any]) -> Row:
    """Make a row of its fields in JSON."""
    figures = {
        group: {name: Figures(**numbers) for name, numbers in fields[group].items()}
        for group in ("efforts", "others")
    }
    return Row(**{**fields, **figures})


def to_json(rows: Iterable[Row]) -> str:
    """The same as data."""
    return json_document(models=[asdict(row) for row in rows])


def _measure_all(options: argparse.Namespace) -> Outcome:
    """A row for each model; the JSON file has all that are known after each."""
    if options.resume and options.json is None:
        raise UsageError("--resume goes on with the file of --json, which is not given")
    known = read_rows(options.json, row_of) if options.resume and options.json.exists() else {}
    chosen = chosen_models(options.models, MODELS)
    work = RowWork(tuple(options.efforts), options.limit, RivalCache(options.cache, options.patience))
    with jobs_at(options.scheduler, None) as jobs:
        for row in spread(jobs or HereJobs(), work, (m for m in chosen if m.name not in known)):
            known[row.model] = row
            if options.json is not None:
                write_atomically(options.json, to_json(known.values()))
    rows = [known[model.name] for model in chosen]
    table = to_markdown(rows)
    kept = partial(with_other_rows, "accuracy", table, [model.name for model in MODELS])
    behind = [f"{row.model}: {line}" for row in rows for line in row.behind()]
    return Outcome(
        "\n".join([table, "", times(rows), "", *totals(rows)]), kept, to_json(known.values()), behind
    )


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--efforts", nargs="+", default=ALL_EFFORTS, choices=ALL_EFFORTS, metavar="NAME", help="only these"
    )
    add_limit_option(parser)
    parser.add_argument("--resume", action="store_true", help="keep what the JSON file has")
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="measure models on the workers of this Dask scheduler, which see the same folders",
    )
    add_json_option(parser)
    add_cache_options(parser)


BENCHMARK = Benchmark(__doc__, _measure_all, "accuracy", add_options=_add_options)
