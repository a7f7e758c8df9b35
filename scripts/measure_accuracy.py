"""Accuracy of qglow's int8 models beside that of onnxruntime's own quantization tool.

    python scripts/measure_accuracy.py [--models NAME ...] [--limit N] [--json FILE] [--update-readme]

Every quantizer calibrates on the same samples, and every result is measured on the same other
samples: the float model in onnxruntime, qglow with its default options, and onnxruntime's static
quantization (QDQ, uint8 activations, int8 weights per channel) by each of its calibration methods.
All of it takes some tens of minutes, most of them in onnxruntime's tool; what that made is kept in
--cache and used again. It also holds every intermediate result of every calibration sample.
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
from rival_models import rival_model

from qglow import Model, QuantizedModel
from qglow.core.errors import QglowError
from qglow.core.files import sha256_hex, write_atomically
from qglow.profiling.samples import DataDigest
from qglow.report.comparison import FLOAT, INT8, Comparison, compare
from qglow.report.oracle import OnnxruntimeModel
from qglow.report.rivals import METHODS, Method

TITLES = (
    "model",
    "samples",
    "float top-1",
    "qglow top-1",
    "drop",
    "agreement",
    "SQNR",
    *(f"ORT {method}" for method in METHODS),
)


@dataclass(frozen=True)
class Figures:
    """One int8 model: accuracy, agreement with float (both per cent) and SQNR of the outputs in dB."""

    top1: float
    agreement: float
    sqnr_db: float


@dataclass(frozen=True)
class Row:
    """One model: float accuracy in per cent, and the figures of every quantizer by its name.

    A method by which onnxruntime's tool fails on the model is not in `onnxruntime`.
    """

    model: str
    samples: int
    float_top1: float
    qglow: Figures
    onnxruntime: dict[str, Figures]

    @property
    def drop(self) -> float:
        """Points of top-1 that qglow's int8 model loses."""
        return self.float_top1 - self.qglow.top1

    def is_acceptable(self) -> bool:
        """At most one point lost, or no rival better in both top-1 and agreement than qglow in each."""
        rivals = self.onnxruntime.values()
        best_top1 = max((rival.top1 for rival in rivals), default=0.0)
        best_agreement = max((rival.agreement for rival in rivals), default=0.0)
        no_worse = self.qglow.top1 >= best_top1 and self.qglow.agreement >= best_agreement
        return self.drop <= 1.0 or no_worse


def measure(model: EvaluatedModel, limit: int | None, cache: Path) -> Row:
    """Quantize by every means, and compare all results with the float model in one pass over the data."""
    loaded = model.load()
    quantized = _quantize(model, loaded)
    rivals = {
        _title(method): OnnxruntimeModel(rival, shapes=loaded.shapes)
        for method in METHODS
        if (rival := _rival(model, loaded, method, cache)) is not None
    }
    comparison = compare(
        quantized.compile(),
        OnnxruntimeModel(model.path, shapes=loaded.shapes),
        model.evaluation.read(model, loaded, limit),
        rivals=rivals,
    )
    float_top1 = 100.0 * comparison.accuracy[FLOAT].top1
    others: dict[str, Figures] = {m: _figures(comparison, _title(m)) for m in METHODS if _title(m) in rivals}
    return Row(model.name, comparison.samples, float_top1, _figures(comparison, INT8), others)


def _title(method: Method) -> str:
    return f"onnxruntime {method}"


def _quantize(model: EvaluatedModel, loaded: Model) -> QuantizedModel:
    recipe, split = model.recipe, model.calibration
    data = model.root / split.data
    profile = loaded.profile(data, select=split.select, samples=split.samples, recipe=recipe)
    return loaded.quantize(profile, recipe)


def _rival(model: EvaluatedModel, loaded: Model, method: Method, cache: Path) -> bytes | None:
    """The model as onnxruntime's tool quantizes it, from the cache where it has been before.

    None, and a line on standard error, where the tool fails.
    """
    digest = DataDigest()
    for sample in model.calibration.read(model, loaded):
        digest.add(sample.inputs)
    key = sha256_hex("\0".join((loaded.sha256, digest.hex, method)).encode())[:32]
    path = cache / f"{model.name}-{method}-{key}.onnx"
    if not path.exists():
        samples = model.calibration.read(model, loaded)
        result = rival_model(model.path, samples, method, loaded.shapes)
        if result is None:
            return None
        write_atomically(path, result)
    return path.read_bytes()


def _figures(comparison: Comparison, name: str) -> Figures:
    pairing = comparison.pairing(name, FLOAT)
    agreement = 0.0 if pairing.agreement is None else 100.0 * pairing.agreement.top1
    return Figures(100.0 * comparison.accuracy[name].top1, agreement, pairing.overall.sqnr_db)


def to_markdown(rows: Iterable[Row]) -> str:
    """The table of the README."""
    body = [
        (
            row.model,
            str(row.samples),
            f"{row.float_top1:.2f}",
            f"{row.qglow.top1:.2f}",
            f"{row.drop:.2f}",
            f"{row.qglow.agreement:.1f}",
            f"{row.qglow.sqnr_db:.1f}",
            *(_cell(row.onnxruntime.get(method)) for method in METHODS),
        )
        for row in rows
    ]
    return f"{markdown_table(TITLES, body)}\n\n{conditions()}"


def _cell(figures: Figures | None) -> str:
    if figures is None:
        return "tool fails"
    return f"{figures.top1:.2f} / {figures.agreement:.1f} / {figures.sqnr_db:.1f}"


def to_json(rows: Iterable[Row]) -> str:
    """The same as data."""
    document = {"conditions": conditions(), "models": [asdict(row) | {"drop": row.drop} for row in rows]}
    return json.dumps(document, indent=2) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 where a model loses more than is acceptable."""
    options = _parse(arguments)
    try:
        rows = []
        for model in chosen_models(options.models):
            print(f"{model.name} ...", file=sys.stderr, flush=True)
            rows.append(measure(model, options.limit, options.cache))
        table = to_markdown(rows)
        print(table)
        if options.json is not None:
            write_atomically(options.json, to_json(rows))
        if options.update_readme:
            update_readme("accuracy", with_other_rows("accuracy", table, [model.name for model in MODELS]))
    except QglowError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    failed = [row.model for row in rows if not row.is_acceptable()]
    for name in failed:
        print(f"{name}: drops by more than 1 point, and is worse than onnxruntime's best", file=sys.stderr)
    return 1 if failed else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--models", nargs="+", default=[], metavar="NAME", help="only these")
    parser.add_argument("--limit", type=int, metavar="N", help="evaluate the first N samples only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON too")
    parser.add_argument("--update-readme", action="store_true", help="put the table into README.md")
    cache = Path(tempfile.gettempdir()) / "qglow-rivals"
    parser.add_argument("--cache", type=Path, default=cache, metavar="DIR", help=f"default {cache}")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
