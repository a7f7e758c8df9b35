"""Accuracy of qglow's int8 models beside that of other quantization tools.

    python scripts/measure_accuracy.py [--models NAME ...] [--limit N] [--json FILE] [--update-readme]

Every quantizer calibrates on the same samples, and every result is measured on the same other
samples: the float model in onnxruntime, qglow with the recipe in recipes/, onnxruntime's static
quantization (QDQ, uint8 activations, int8 weights per channel) by each of its calibration methods,
and NNCF's post-training quantization where it is installed (extra `bench`).
All of it takes some tens of minutes, most of them in onnxruntime's tool, which also holds every
intermediate result of every calibration sample; what the tools made is kept in --cache and used
again. A tool that takes longer than --patience for a model is stopped, and said to.

Exits with 1, and a line for each, where qglow is behind the best of the others by more than the
limits: 1 point of top-1, 1 point of agreement, 0.5 dB of SQNR.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from evaluated_models import MODELS, EvaluatedModel, chosen_models
from readme_tables import conditions, markdown_table, update_readme, with_other_rows
from rival_models import NNCF, RivalCache, tools

from qglow import Model, QuantizedModel
from qglow.core.errors import QglowError
from qglow.core.files import write_atomically
from qglow.report.comparison import FLOAT, INT8, Comparison, compare
from qglow.report.oracle import OnnxruntimeModel

TITLES = ("model", "samples", "float top-1", "qglow top-1", "drop", "lost / won", "agreement", "SQNR")
LIMITS = {
    "top1": ("top-1", "points", 1.0),
    "agreement": ("agreement", "points", 1.0),
    "sqnr_db": ("SQNR", "dB", 0.5),
}
"""By how much each figure may be behind the best of the others."""


@dataclass(frozen=True)
class Figures:
    """One int8 model: accuracy, agreement with float (both per cent) and SQNR of the outputs in dB.

    lost, won: samples that only the float model, and only this one, gets right.
    """

    top1: float
    agreement: float
    sqnr_db: float
    lost: int
    won: int


@dataclass(frozen=True)
class Row:
    """One model: float accuracy in per cent, and the figures of every quantizer by its name.

    A tool that fails on the model, or takes too long, is not in `others`.
    """

    model: str
    samples: int
    float_top1: float
    qglow: Figures
    others: dict[str, Figures]

    @property
    def drop(self) -> float:
        """Points of top-1 that qglow's int8 model loses."""
        return self.float_top1 - self.qglow.top1

    def behind(self) -> list[str]:
        """In what qglow is behind the best of the others by more than it may be."""
        found = []
        for name, (what, unit, limit) in LIMITS.items():
            figures = {tool: float(getattr(other, name)) for tool, other in self.others.items()}
            if not figures:
                continue
            best = max(figures, key=figures.__getitem__)
            gap = figures[best] - float(getattr(self.qglow, name))
            if gap > limit:
                found.append(f"{what} is {gap:.2f} {unit} behind {title_of(best)} (limit {limit:g})")
        return found


def measure(model: EvaluatedModel, limit: int | None, cache: RivalCache) -> Row:
    """Quantize by every means, and compare all results with the float model in one pass over the data."""
    loaded = model.load()
    quantized = _quantize(model, loaded)
    made = {tool: cache.get(model, loaded, tool) for tool in tools()}
    rivals = {
        title_of(tool): OnnxruntimeModel(content, shapes=loaded.shapes)
        for tool, content in made.items()
        if content is not None
    }
    comparison = compare(
        quantized.compile(),
        OnnxruntimeModel(model.path, shapes=loaded.shapes),
        model.evaluation.read(model, loaded, limit),
        rivals=rivals,
    )
    others = {tool: _figures(comparison, title_of(tool)) for tool in made if title_of(tool) in rivals}
    float_top1 = 100.0 * comparison.accuracy[FLOAT].top1
    return Row(model.name, comparison.samples, float_top1, _figures(comparison, INT8), others)


def title_of(tool: str) -> str:
    """What a table calls a tool."""
    return "NNCF" if tool == NNCF else f"ORT {tool}"


def _quantize(model: EvaluatedModel, loaded: Model) -> QuantizedModel:
    recipe, split = model.recipe, model.calibration
    data = model.root / split.data
    profile = loaded.profile(data, select=split.select, samples=split.samples, recipe=recipe)
    return loaded.quantize(profile, recipe)


def _figures(comparison: Comparison, name: str) -> Figures:
    pairing = comparison.pairing(name, FLOAT)
    agreement = 0.0 if pairing.agreement is None else 100.0 * pairing.agreement.top1
    flips = pairing.flips
    assert flips is not None
    top1 = 100.0 * comparison.accuracy[name].top1
    return Figures(top1, agreement, pairing.overall.sqnr_db, flips.lost, flips.won)


def to_markdown(rows: Iterable[Row]) -> str:
    """The table of the README."""
    body = [
        (
            row.model,
            str(row.samples),
            f"{row.float_top1:.2f}",
            f"{row.qglow.top1:.2f}",
            f"{row.drop:.2f}",
            f"{row.qglow.lost} / {row.qglow.won}",
            f"{row.qglow.agreement:.1f}",
            f"{row.qglow.sqnr_db:.1f}",
            *(_cell(row.others.get(tool)) for tool in tools()),
        )
        for row in rows
    ]
    titles = (*TITLES, *(title_of(tool) for tool in tools()))
    return f"{markdown_table(titles, body)}\n\n{conditions()}"


def _cell(figures: Figures | None) -> str:
    if figures is None:
        return "none"
    return f"{figures.top1:.2f} / {figures.agreement:.1f} / {figures.sqnr_db:.1f}"


def totals(rows: Sequence[Row]) -> list[str]:
    """qglow and every other tool, over the models that the tool could quantize."""
    lines = []
    for tool in tools():
        both = [(row.qglow, row.others[tool]) for row in rows if tool in row.others]
        if not both:
            continue
        agreement = sum(ours.agreement - its.agreement for ours, its in both) / len(both)
        sqnr = sum(ours.sqnr_db - its.sqnr_db for ours, its in both) / len(both)
        net, their_net = (sum(f.lost - f.won for f in each) for each in zip(*both, strict=True))
        lines.append(
            f"against {title_of(tool)} over {len(both)} models: lost minus won {net} against {their_net}, "
            f"in the mean {agreement:+.2f} points of agreement and {sqnr:+.2f} dB of SQNR"
        )
    return lines


def to_json(rows: Iterable[Row]) -> str:
    """The same as data."""
    document = {"conditions": conditions(), "models": [asdict(row) | {"drop": row.drop} for row in rows]}
    return json.dumps(document, indent=2) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 where qglow is behind by more than it may be."""
    options = _parse(arguments)
    try:
        rows = []
        for model in chosen_models(options.models):
            print(f"{model.name} ...", file=sys.stderr, flush=True)
            rows.append(measure(model, options.limit, RivalCache(options.cache, options.patience)))
        table = to_markdown(rows)
        print(table, *totals(rows), sep="\n")
        if options.json is not None:
            write_atomically(options.json, to_json(rows))
        if options.update_readme:
            update_readme("accuracy", with_other_rows("accuracy", table, [model.name for model in MODELS]))
    except QglowError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    behind = [f"{row.model}: {line}" for row in rows for line in row.behind()]
    for line in behind:
        print(line, file=sys.stderr)
    return 1 if behind else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--models", nargs="+", default=[], metavar="NAME", help="only these")
    parser.add_argument("--limit", type=int, metavar="N", help="evaluate the first N samples only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON too")
    parser.add_argument("--update-readme", action="store_true", help="put the table into README.md")
    cache = Path(tempfile.gettempdir()) / "qglow-rivals"
    parser.add_argument("--cache", type=Path, default=cache, metavar="DIR", help=f"default {cache}")
    parser.add_argument(
        "--patience", type=float, default=120.0, metavar="SECONDS", help="for another tool and model; 120"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
