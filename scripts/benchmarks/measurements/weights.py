"""Cost of weights in 8, 4 or 2 bits for a language model: next tokens, SQNR and size.

The model is the llama over stories. Nothing calibrates it, but for `gptq`, which rounds by the inputs of
layers over 64 other stories, and for mixed formats, which are chosen over eight of these. Agreement counts
the positions whose likeliest token is that of float32; top-1 those where it is the next one of the story.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import qglow
from qglow.core.types import Array
from qglow.report.metrics import sqnr_db
from scripts.benchmarks.frame import Benchmark, Outcome
from scripts.benchmarks.models.sequences import stories
from scripts.benchmarks.tables import markdown_table

FORMATS = ("int8", "int8:32:symmetric", "int4:16", "int4", "int4:32:symmetric", "int4:128", "int2:16")
DYNAMIC = ("int8", "int4", "int4:128")
LEARNED = ("int4:16", "int4", "int4:32:symmetric", "int4:128", "int2:16")
TABLES_TOO = ("int4:128", "int4", "int4:16")
MIXED = ("4.5bits", "5bits", "5.5bits", "6bits")
TITLES = ("weights", "MB", "next tokens as in float32", "SQNR", "top-1")
_STORIES = 128


def scores(program: qglow.Executable, tokens: Array) -> Array:
    """Scores [stories, positions, words] of the next token, for tokens [stories, positions]."""
    (name,) = program.inputs
    return np.concatenate([next(iter(program({name: row[None]}).values())) for row in tokens])


def row(name: str, size: int, found: Array, real: Array, tokens: Array) -> tuple[str, ...]:
    """Figures of scores `found` where float32 gives `real`. size: bytes of the weights."""
    likeliest = found.argmax(-1)
    error = found.astype(np.float64) - real
    sqnr = sqnr_db(float(np.square(real, dtype=np.float64).sum()), float(np.square(error).sum()))
    return (
        name,
        f"{size / 1e6:.2f}",
        f"{np.mean(likeliest == real.argmax(-1)):.1%}",
        f"{sqnr:.1f} dB" if np.isfinite(sqnr) else "",
        f"{np.mean(likeliest[:, :-1] == tokens[:, 1:]):.2%}",
    )


def measure(
    path: Path, shapes: Mapping[str, Sequence[int]], tokens: Array, calibration: Path
) -> list[tuple[str, ...]]:
    """A row for float32, one for each of `FORMATS`, of `DYNAMIC` with int8 rows, of `LEARNED` with gptq.

    Then one for each of `TABLES_TOO`, with gptq and tables of words in blocks, as mixed formats have; and
    two for each of `MIXED`, formats of layers by sensitivity: to the nearest, and with gptq.
    """
    model = qglow.load_model(path, shapes)
    real = scores(model.compile(), tokens)
    rows: list[tuple[str, ...]] = []
    for name in FORMATS:
        quantized = model.quantize(weights=name)
        assert quantized.report is not None
        if not rows:
            rows.append(row("float32", quantized.report.weight_bytes_before, real, real, tokens))
        found = scores(quantized.compile(), tokens)
        rows.append(row(f"`{name}`", quantized.report.weight_bytes_after, found, real, tokens))
    for name in DYNAMIC:
        quantized = model.quantize(weights=name, dynamic=True)
        assert quantized.report is not None
        found, size = scores(quantized.compile(), tokens), quantized.report.weight_bytes_after
        rows.append(row(f"`{name}`, dynamic", size, found, real, tokens))
    for name in LEARNED:
        quantized = model.quantize(weights=name, rounding="gptq", calibration_data=calibration)
        assert quantized.report is not None
        found, size = scores(quantized.compile(), tokens), quantized.report.weight_bytes_after
        rows.append(row(f"`{name}`, gptq", size, found, real, tokens))
    for name in TABLES_TOO:
        form = qglow.Recipe().with_overrides(weights=name).weights
        tables = qglow.Rule(qglow.Match(operator="Gather"), weights=form)
        recipe = qglow.Recipe(weights=form, rules=(tables,), rounding="gptq")
        quantized = model.quantize(recipe=recipe, calibration_data=calibration)
        assert quantized.report is not None
        found, size = scores(quantized.compile(), tokens), quantized.report.weight_bytes_after
        rows.append(row(f"`{name}`, tables too, gptq", size, found, real, tokens))
    for bits in MIXED:
        mix = qglow.mix_weights(model, calibration, bits)
        for rounding, title in (("nearest", ""), ("gptq", ", gptq")):
            quantized = model.quantize(recipe=mix.recipe, rounding=rounding, calibration_data=calibration)
            assert quantized.report is not None
            found, size = scores(quantized.compile(), tokens), quantized.report.weight_bytes_after
            rows.append(row(f"mixed, {mix.bits:.2f} bits{title}", size, found, real, tokens))
    return rows


def _measure_all(options: argparse.Namespace) -> Outcome:
    with TemporaryDirectory() as folder:
        model = stories(Path(folder))
        with np.load(Path(folder) / "evaluation.npz") as arrays:
            tokens = arrays["tokens"][:_STORIES]
        rows = measure(model.path, model.shapes or {}, tokens, Path(folder) / "calibration.npz")
    return Outcome(markdown_table(TITLES, rows))


BENCHMARK = Benchmark(__doc__, _measure_all, table="weights", models=None)
